"""The benchmark of the training forms measures each in a process of its own and compares them."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def training_forms(import_benchmark):
    return import_benchmark("training_forms")


def test_forms_are_measured_in_turn_and_compared_with_stock(training_forms, tmp_path, monkeypatch, capsys):
    asked = []

    def measured(workload: str, form: str) -> float:
        asked.append((workload, form))
        return {"stock": 2.0, "plain": 1.0, "kernels": 0.5}[form]

    monkeypatch.setattr(training_forms, "measure_once", measured)
    training_forms.main(["--repeats", "2", "--out", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    assert asked[:6] == [("policy", form) for form in training_forms.FORMS] * 2
    assert result["judge"]["kernels"] == {"step_s": 0.5, "relative": 0.25}
    assert "kernels 0.25" in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_is_measured_in_a_process_of_its_own(training_forms):
    assert training_forms.measure_once("policy", "kernels") > 0
