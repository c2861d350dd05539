"""The benchmark measures the work it names, and says where."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def tiny_step(import_benchmark):
    return import_benchmark("tiny_step")


def test_the_result_counts_every_token_and_names_the_machine(tiny_step, tmp_path, monkeypatch, capsys):
    small = tiny_step.Workload(n_prompts=2, rollout_n=2, prompt_tokens=5, new_tokens=3, micro_batch_rows=3)
    monkeypatch.setattr(tiny_step, "Workload", lambda: small)
    tiny_step.main(["--repeats", "2", "--out", str(tmp_path / "new/result.json")])
    result = json.loads((tmp_path / "new/result.json").read_text())
    for name, n_tokens in (("generate", 2 * 2 * 3), ("generate_plain", 2 * 2 * 3), ("train", 2 * 2 * (5 + 3))):
        part = result[name]
        assert part["repeats"] == 2
        assert 0 < part["fastest_s"] <= part["median_s"] <= part["slowest_s"]
        assert part["tokens_per_s"] == pytest.approx(n_tokens / part["median_s"], rel=0.01, abs=1)
    printed = capsys.readouterr().out
    assert "generate" in printed
    assert "train" in printed
    assert result["workload"]["parameters"] > 1_000_000
    assert {"cpu", "cores", "packages", "settings", "load_before"} <= set(result["machine"])


def test_the_training_step_changes_the_weights(tiny_step):
    model = tiny_step.build_model()
    prompts = [[1, 2, 3], [1, 2, 3]]
    completions = [tiny_step.Completion([4, 5], [-1.0, -1.0], "length"), tiny_step.Completion([6], [-1.0], "length")]
    before = [parameter.numpy().copy() for parameter in model.parameters()]
    tiny_step.training_step(model, prompts, completions, tiny_step.Workload())()
    changed = [(old != new.numpy()).any() for old, new in zip(before, model.parameters(), strict=True)]
    assert all(changed)


def test_warming_up_is_not_counted(tiny_step):
    calls = []
    works = [lambda: calls.append("a") or len(calls), lambda: calls.append("b") or len(calls)]
    (first, seconds), (second, _) = tiny_step.timed_in_turn(works, 3)
    assert (first, second, len(seconds)) == (7, 8, 3)
    assert "".join(calls) == "abababab"
