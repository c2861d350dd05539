"""The benchmark of a pretrained model's steps measures steps, here of a tiny shape."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
def test_every_workload_is_measured(import_benchmark, tmp_path, monkeypatch):
    pretrained_step = import_benchmark("pretrained_step")
    tiny = {"vocab_size": 64, "hidden_size": 18, "intermediate_size": 24, "num_hidden_layers": 1}
    monkeypatch.setattr(pretrained_step, "SHAPE", pretrained_step.SHAPE | tiny)
    monkeypatch.setattr(pretrained_step, "WORKLOADS", {"sft": (4, 1, 6, 3), "rl": (2, 3, 6, 3)})
    pretrained_step.main(["--precision", "float32", "--repeats", "1", "--out", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    for name in ("sft", "rl"):
        assert 0 <= result[name]["padding"] < 1
        assert result[name]["tokens_a_cpu_second"] > 0
    assert result["rl"]["distinct_tokens"] < result["rl"]["tokens"]
