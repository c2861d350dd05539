"""The benchmark measures the work it names, and says where."""

from __future__ import annotations

import json

import pytest


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


# --- the benchmark of a pretrained model's steps measures steps, here of a tiny shape


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


# --- the benchmark of the training forms measures each in a process of its own and compares them


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


# --- the committed measurement is of this script, and two tensor ranks need little more than half of what one needs


def test_two_tensor_ranks_grow_by_at_most_six_tenths_of_what_one_process_grows_by(import_benchmark):
    benchmark = import_benchmark("tensor_memory")
    result = import_benchmark("published").result("tensor_memory")
    assert result["model"] == benchmark.SHAPE
    assert [row["layout"] for row in result["rows"]] == list(benchmark.LAYOUTS)
    alone, *divided = (row["growth_mib"] for row in result["rows"])
    assert all(growth <= 0.6 * alone for growth in divided)


# --- the plan of a device's memory beside a process that trains


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_process_grows_about_as_planned(import_benchmark, tmp_path):
    memory = import_benchmark("memory")
    memory.main(["--cases", "alone-512", "--out", str(tmp_path / "memory.json")])
    (row,) = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert abs(row["error"]) < 0.3
    assert row["measured_mib"] > 1500, "gradients and states of 135 million weights alone"


def test_the_results_kept_are_of_these_plans_and_within_10_percent(import_benchmark):
    memory = import_benchmark("memory")
    rows, cases = import_benchmark("published").result("memory")["rows"], {case.name: case for case in memory.CASES}
    assert len(rows) >= 8
    for row in rows:
        planned = memory.plan(cases[row["name"]])
        for before, part in (("", "resident"), ("tensors_", "tensors")):
            assert row[f"{before}planned_mib"] == pytest.approx(planned[part] / memory.MIB, abs=1), "the plan changed"
            assert row[f"{before}measured_mib"] is None or abs(row[f"{before}error"]) < 0.1
