"""Evaluation inside a run: what it leaves in the records, in checkpoints, and in the choice of the best of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from support.rl_processes import TinyWorld, entry_command, held_out_settings, metrics_of, train_here

from grrm.config import RLConfig, load_config
from grrm.config.rollout_checks import held_out_metrics
from grrm.errors import UserError
from grrm.rl import run as rl_run
from grrm.tracking.metrics_log import read_metrics
from grrm.training.checkpoints import read_marker

train = partial(train_here, rl_run.train)


def arguments(world: TinyWorld, folder: Path, references: bool = True, **changes: str) -> RLConfig:
    folder.mkdir(exist_ok=True)
    settings = {"max_steps": "2", "save_steps": "1", "lr_scheduler_type": "constant", "warmup_steps": "0", **changes}
    held_out = held_out_settings(world, folder, references)
    command = entry_command(world, folder / "out", **{**held_out, **settings})
    return load_config(RLConfig, command[1], command[2:])


def evaluations(folder: Path) -> list[dict]:
    return [line for line in read_metrics(folder / "out") if "eval_reward" in line]


def test_an_evaluation_is_on_the_console_in_the_metrics_and_in_visualdl(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from visualdl import LogReader

    config = arguments(world, tmp_path, eval_top_p="0.7", report_to="visualdl")
    train(config)
    found = evaluations(tmp_path)
    assert [line["step"] for line in found] == [0, 1, 2]
    names = {name for name in found[0] if name.startswith("eval_")}
    assert {name for name in names if not name.startswith("eval_alarm/")} == set(held_out_metrics(config))
    (file,) = tmp_path.glob("out/runs/*/vdlrecords.*.log")
    reader = LogReader(file_path=str(file))
    for name in ("chrf", "bleu_greedy", "frac_duplicate", "alarm/raised", "alarm/chrf_greedy_change"):
        curve = [(point.id, point.value) for point in reader.get_data("scalar", f"eval/{name}")]
        assert curve == [(line["step"], pytest.approx(line[f"eval_{name}"], abs=1e-5)) for line in found]
    files = sorted(tmp_path.glob("out/held_out/step*.jsonl"))
    assert [path.stem for path in files] == ["step000000", "step000001", "step000002"]
    row = json.loads(files[-1].read_text(encoding="utf-8").splitlines()[0])
    assert len(row["responses"]) == len(row["rewards"]) == 3  # one greedy, two samples
    assert all(
        text.strip().endswith(shown) for text, shown in zip(row["responses"], row["translations"], strict=True) if shown
    )
    said = [line for line in capfd.readouterr().err.splitlines() if "12 held-out prompts: reward" in line]
    assert [line.startswith(f"grpo: step {step}, ") for step, line in enumerate(said)] == [True, True, True]
    steps = [line for line in read_metrics(tmp_path / "out") if "loss" in line]
    assert all(0 <= line["frac_duplicate"] <= 1 for line in steps)


def test_a_resumed_run_evaluates_and_chooses_as_if_it_had_never_stopped(world: TinyWorld, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    chosen = {"metric_for_best_model": "chrf", "load_best_model_at_end": "true"}
    train(arguments(world, whole, max_steps="3", **chosen))
    for steps in ("1", "3"):
        train(arguments(world, parts, max_steps=steps, **chosen))
    assert evaluations(whole) == evaluations(parts)
    states = [read_marker(folder / "out/checkpoint-3")["alarm"] for folder in (whole, parts)]
    assert states[0] == states[1]
    assert states[0]["first"]["step"] == 0
    values = [line["eval_chrf"] for line in evaluations(whole)][1:]  # of steps that have a checkpoint
    assert len(set(values)) > 1
    for folder in (whole, parts):
        state = json.loads((folder / "out/checkpoint-3/trainer_state.json").read_text())
        assert state["best_metric"] == max(values)
        assert state["best_model_checkpoint"].endswith(f"checkpoint-{values.index(max(values)) + 1}")


def test_rows_without_references_are_told_once(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(arguments(world, tmp_path, references=False, reward_judge="consensus"))
    found = evaluations(tmp_path)
    assert len(found) == 3
    assert not [name for name in found[0] if "chrf" in name or "alarm" in name]
    assert capfd.readouterr().err.count("there can be no alarm of reward hacking: 0 of 12 held-out rows have a") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric_for_best_model": "bleu"}, r"metric_for_best_model is bleu, but no row of '.*' has a reference"),
        ({"eval_datasets": "null", "held_out": "2"}, r"few.jsonl' has too few rows to hold some out: give eval_datas"),
    ],
)
def test_rows_that_cannot_be_evaluated_as_asked_are_told_before_a_model_is_loaded(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(rl_run, "load_part", lambda *_: pytest.fail("a model was loaded"))
    few = tmp_path / "few.jsonl"
    few.write_text("".join(world.rl_data.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(UserError, match=message):
        train(arguments(world, tmp_path, references=False, train_datasets=str(few), **changes))


def test_a_run_is_evaluated_before_its_first_step_and_after_its_last_as_well(world: TinyWorld, tmp_path: Path) -> None:
    for steps in ("2", "4"):
        train(arguments(world, tmp_path, max_steps=steps, eval_steps="3"))
    assert [line["step"] for line in evaluations(tmp_path)] == [0, 2, 3, 4]
    assert read_marker(tmp_path / "out/checkpoint-4")["alarm"]["first"]["step"] == 0
    verdict = json.loads((tmp_path / "out/verdict.json").read_text())
    assert (verdict["first_step"], verdict["last_step"]) == (0, 4)


def test_a_run_that_stops_early_says_why(world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stopping = {"early_stopping": "true", "early_stopping_patience": "1", "early_stopping_threshold": "9"}
    train(arguments(world, tmp_path, max_steps="3", logging_steps="5", **stopping))
    assert [line["step"] for line in evaluations(tmp_path)] == [0, 1]
    assert [line["step"] for line in metrics_of(tmp_path / "out") if "loss" in line] == [1]
    best = evaluations(tmp_path)[0]["eval_reward"]
    reason = f"eval_reward has not risen above {best:.3f} by more than 9 in the last 1 evaluations"
    assert f"early_stopping ends the run at step 1: {reason}" in capfd.readouterr().err
    train(arguments(world, tmp_path, max_steps="4", **stopping))
    assert f"early_stopping has ended this run at step 1: {reason}" in capfd.readouterr().err
    train(arguments(world, tmp_path, max_steps="4", **stopping))
    assert "is left as it is; change early_stopping to go on, set" in capfd.readouterr().err
    train(arguments(world, tmp_path, max_steps="4"))
    assert [line["step"] for line in evaluations(tmp_path)] == [0, 1, 2, 3, 4]
