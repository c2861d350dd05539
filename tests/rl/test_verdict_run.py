"""What a run knows and says at its end: its verdict, what its checkpoints know, and that it is finished."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from support.rl_processes import TinyWorld, entry_command, run, train_here, two_ranks

from grrm.config import RLConfig, load_config
from grrm.errors import UserError
from grrm.models.tokenizer import load_tokenizer
from grrm.models.trained_with import TrainedWith, read_trained_with, write_trained_with
from grrm.rl import run as rl_run
from grrm.rl.prompts import read_rows
from grrm.tracking.metrics_log import read_metrics

HELD_OUT = {"held_out": "12", "eval_samples": "2", "warmup_steps": "0", "extractor_type": "oneline"}


train = partial(train_here, rl_run.train)


def arguments(world: TinyWorld, output: Path, **changes: str) -> RLConfig:
    command = entry_command(world, output, **{**HELD_OUT, "max_steps": "2", "save_steps": "2", **changes})
    return load_config(RLConfig, command[1], command[2:])


def test_held_out_rows_share_no_source_with_training_and_are_the_same_for_all_seeds(
    world: TinyWorld, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(world.policy)
    train_rows, held_out = read_rows(arguments(world, tmp_path), tokenizer)
    assert len(held_out) >= 12
    assert {item.task.source for item in held_out}.isdisjoint(item.task.source for item in train_rows)
    assert len(train_rows) + len(held_out) == len(world.rl_data.read_text().splitlines())
    again = read_rows(arguments(world, tmp_path, seed="7"), tokenizer)[1]
    assert [item.prompt_text for item in again] == [item.prompt_text for item in held_out]
    many = read_rows(arguments(world, tmp_path, held_out="1000"), tokenizer)[1]
    assert len(many) <= 0.1 * len(world.rl_data.read_text().splitlines()) + 5
    assert read_rows(arguments(world, tmp_path, held_out="0"), tokenizer)[1] == ()


def test_another_spelling_of_a_held_out_source_is_not_trained_on(world: TinyWorld, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in world.rl_data.read_text().splitlines()]
    doubled = tmp_path / "rows.jsonl"
    with doubled.open("w") as file:
        for row in rows:
            source = json.loads(row["tgt"])["source"]
            shouted = {key: text.replace(source, source.upper()) for key, text in row.items()}
            file.writelines(f"{json.dumps(spelled)}\n" for spelled in (row, shouted))
    config = arguments(world, tmp_path, train_datasets=str(doubled))
    split = [{item.task.source.casefold() for item in part} for part in read_rows(config, load_tokenizer(world.policy))]
    assert split[1]
    assert split[0].isdisjoint(split[1])


def test_a_run_ends_with_a_verdict_and_is_finished(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    train(arguments(world, output, kl_loss_coeff="0.05"))
    said = capfd.readouterr().err
    assert [line["step"] for line in read_metrics(output) if "eval_reward" in line] == [0, 2]
    verdict = json.loads((output / "verdict.json").read_text())
    assert verdict["verdict"] in ("helped", "did not help", "cannot tell")
    first, last = (line for line in read_metrics(output) if "eval_reward" in line)
    for name in ("chrf", "chrf_greedy", "reward", "reward_greedy"):
        change = verdict["changes"][name]
        assert (change["before"], change["after"]) == (
            pytest.approx(first[f"eval_{name}"], abs=1e-6),
            pytest.approx(last[f"eval_{name}"], abs=1e-6),
        )
    assert verdict["kl"] == [line["kl"] for line in read_metrics(output) if "kl" in line][-1]
    assert f"verdict: {verdict['verdict']} (" in said
    assert f"grrm translate ROWS --model {output}" in said
    assert f"grrm report {output}" in said

    monkeypatch.setattr(rl_run, "load_part", lambda *_: pytest.fail("the model was loaded"))
    before = (output / "model.safetensors").stat().st_mtime_ns
    train(arguments(world, output, kl_loss_coeff="0.05"))
    again = capfd.readouterr().err
    assert "has the model of step 2, the last of this run, and is left as it is; raise max_steps to go on" in again
    assert f"verdict: {verdict['verdict']} (" in again
    assert (output / "model.safetensors").stat().st_mtime_ns == before
    train(arguments(world, output, kl_loss_coeff="0.1"))
    assert "the last of this run (its kl_loss_coeff had other values), and is left" in capfd.readouterr().err
    train(arguments(world, output, kl_loss_coeff="0.05", per_device_train_batch_size="2"))
    assert "the last of this run (its per_device_train_batch_size had other values), and" in capfd.readouterr().err


def test_a_run_that_saves_no_checkpoint_is_finished_too_and_more_steps_start_it_again(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        train(arguments(world, tmp_path, held_out="0", max_steps="1", save_strategy="no"))
    said = capfd.readouterr().err
    assert said.count("finished: ") == 1
    assert "is left as it is; raise max_steps to train it anew, as there is no checkpoint, set overwrite" in said
    train(arguments(world, tmp_path, held_out="0", save_strategy="no"))
    assert "finished: " not in capfd.readouterr().err
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]
    train(arguments(world, tmp_path, held_out="0", save_strategy="no", overwrite_output_dir="true"))
    assert "finished: " not in capfd.readouterr().err


def test_evaluations_change_no_step_of_training(world: TinyWorld, tmp_path: Path) -> None:
    def losses(folder: Path) -> list[float]:
        return [line["loss"] for line in read_metrics(folder) if "loss" in line]

    rows = world.rl_data.read_text().splitlines(keepends=True)
    held = tmp_path / "held.jsonl"
    held.write_text("".join(rows[:12]))
    train(arguments(world, tmp_path / "without", held_out="0"))
    train(arguments(world, tmp_path / "with", eval_datasets=str(held)))
    assert losses(tmp_path / "with") == losses(tmp_path / "without")


def test_without_the_first_evaluation_there_is_no_verdict_and_one_line_says_why(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(arguments(world, tmp_path, max_steps="1", save_steps="1", eval_on_start="false"))
    assert "no verdict: there was no evaluation before the first step (eval_on_start)" in capfd.readouterr().err
    assert not (tmp_path / "verdict.json").exists()


def test_a_run_that_starts_over_leaves_no_evaluation_and_no_verdict_of_the_one_before(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(arguments(world, tmp_path, max_steps="1", save_steps="1"))
    (tmp_path / "rejudged").mkdir()
    (tmp_path / "rejudged/chrf.jsonl").write_text("")
    capfd.readouterr()
    again = {"max_steps": "1", "save_steps": "1", "overwrite_output_dir": "true"}
    train(arguments(world, tmp_path, eval_on_start="false", **again))
    assert "no verdict: there was no evaluation before the first step" in capfd.readouterr().err
    assert [line["step"] for line in read_metrics(tmp_path) if "eval_reward" in line] == [1]
    assert not list((tmp_path / "rejudged").iterdir())
    train(arguments(world, tmp_path, held_out="0", **again))
    assert "verdict" not in capfd.readouterr().err
    assert not list((tmp_path / "held_out").iterdir())


def test_a_longer_run_that_evaluates_no_more_does_not_end_with_the_verdict_of_the_shorter_one(
    world: TinyWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    held = tmp_path / "held.jsonl"
    held.write_text("".join(world.rl_data.read_text().splitlines(keepends=True)[:12]))
    output, steps = tmp_path / "out", {"save_steps": "1", "held_out": "0"}
    train(arguments(world, output, max_steps="1", eval_datasets=str(held), **steps))
    assert (output / "verdict.json").exists()
    capfd.readouterr()
    train(arguments(world, output, max_steps="2", eval_samples="1", **steps))
    assert "verdict: " not in capfd.readouterr().err
    assert not (output / "verdict.json").exists()
    assert (output / "held_out/step000001.jsonl").exists()


def test_checkpoints_know_their_prompts_and_data_of_other_prompts_are_refused(world: TinyWorld, tmp_path: Path) -> None:
    output = tmp_path / "out"
    train(arguments(world, output, held_out="0", max_steps="1", save_steps="1"))
    for folder in (output, output / "checkpoint-1"):
        known = read_trained_with(folder)
        assert (known.prompt_type, known.extractor_type, known.chat_template) == ("Tower", "oneline", "chatml")
        assert known.language_pairs == ("de-en", "en-de", "en-es", "es-en")
        assert [(one.stage, one.file) for one in known.data] == [("rl", world.rl_data.name)]
    write_trained_with(output, TrainedWith(prompt_type="seedx"))
    changes = {"actor_model_name_or_path": str(output), "held_out": "0"}
    with pytest.raises(
        UserError, match=r"have the prompt type Tower, but '.*out' was trained with seedx: convert them"
    ):
        train(arguments(world, tmp_path / "next", **changes))


@pytest.mark.slow
def test_two_ranks_tell_one_verdict_and_leave_a_finished_run_alone(world: TinyWorld, tmp_path: Path) -> None:
    command = entry_command(world, tmp_path / "out", **{**HELD_OUT, "max_steps": "2", "save_steps": "2"})
    first = run(two_ranks(command, tmp_path / "logs"))
    assert (first.stdout + first.stderr).count("verdict: ") == 1
    again = run(two_ranks(command, tmp_path / "again"))
    said = again.stdout + again.stderr
    assert said.count("finished: ") == said.count("verdict: ") == 1
