"""Only whole checkpoints are resumed from."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from grrm.errors import UserError
from grrm.training.checkpoints import (
    MARKER,
    MarksCheckpoints,
    check_resumable,
    claim_output_dir,
    drop_old_checkpoints,
    hold_output_dir,
    last_complete_checkpoint,
    read_marker,
    resume_point,
    save_final,
    start_over,
    write_marker,
)
from grrm.training.topology import Topology, check_topology


def checkpoint(folder, step, state=None):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if state is not None:
        write_marker(path, state)
    return path


def test_marker_comes_back_and_leaves_nothing_beside_it(tmp_path):
    path = checkpoint(tmp_path, 3, {"step": 3, "generation": 5, "moments": None})
    assert read_marker(path) == {"step": 3, "generation": 5, "moments": None}
    assert [file.name for file in path.iterdir()] == [MARKER]


def test_newest_whole_checkpoint_is_found_by_number_and_others_are_passed_over(tmp_path):
    assert last_complete_checkpoint(tmp_path) is None
    assert last_complete_checkpoint(tmp_path / "none") is None
    for step in (9, 10):
        checkpoint(tmp_path, step, {"step": step})
    checkpoint(tmp_path, 11)
    checkpoint(tmp_path, "best", {"step": 99})
    own = checkpoint(tmp_path, "own-12", {"step": 12})  # a copy of its user's
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    start_over(SimpleNamespace(output_dir=str(tmp_path)), None)
    assert (own / MARKER).exists()


def test_where_to_resume(tmp_path):
    newest = checkpoint(tmp_path, 4, {"step": 4})
    named = checkpoint(tmp_path / "elsewhere", 2, {"step": 2})

    def args(**changes):
        settings = {"resume_from_checkpoint": None, "overwrite_output_dir": False, "output_dir": str(tmp_path)}
        return SimpleNamespace(**{**settings, **changes})

    assert resume_point(args()) == newest
    assert resume_point(args(overwrite_output_dir=True)) is None
    assert resume_point(args(resume_from_checkpoint=str(named))) == named
    with pytest.raises(UserError, match="is not a directory: name a checkpoint-N folder"):
        resume_point(args(resume_from_checkpoint=str(tmp_path / "none")))


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"generation": 1}', '{"step": null}', b"\xff\xfe"])
def test_damaged_marker_is_told(tmp_path, content):
    path = checkpoint(tmp_path, 1)
    (path / MARKER).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=f"{MARKER} in checkpoint '.*' is damaged"):
        read_marker(path)


def test_output_folder_is_made_or_refused(tmp_path):
    claim_output_dir(tmp_path / "a/b")
    claim_output_dir(tmp_path / "a/b")
    assert (tmp_path / "a/b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        claim_output_dir(tmp_path / "file")


def test_a_folder_has_one_run_at_a_time_until_its_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.training.checkpoints._LOCK_WAIT_S", 0.0)
    holds = "import sys; from grrm.training.checkpoints import hold_output_dir as hold; hold(sys.argv[1]); print(1)"
    command = [sys.executable, "-c", f"{holds}; sys.stdout.flush(); input()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(UserError, match="another run writes to output_dir"):
            hold_output_dir(tmp_path)
        other.kill()
    (tmp_path / ".saving-x").mkdir()  # as a run leaves it that is killed at its end
    hold_output_dir(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.training.checkpoints.os.access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UserError, match="cannot be written: name another folder or mend its permissions"):
        claim_output_dir(tmp_path)


def test_only_checkpoints_marked_last_are_kept(tmp_path):
    for age, step in enumerate((90, 10, 20, 30)):  # 90 was left by an earlier run in the same folder
        path = checkpoint(tmp_path, step, {"step": step})
        os.utime(path / MARKER, (1000 + age, 1000 + age))
    checkpoint(tmp_path, 25)
    checkpoint(tmp_path, "best", {"step": 1})
    drop_old_checkpoints(tmp_path, None)
    drop_old_checkpoints(tmp_path, 0)
    assert len(list(tmp_path.iterdir())) == 6
    drop_old_checkpoints(tmp_path, 2, spare="out/checkpoint-10")
    assert {path.name for path in tmp_path.iterdir()} == {f"checkpoint-{n}" for n in (10, 20, 30, "best")}
    drop_old_checkpoints(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-30", "checkpoint-best"}


def training_args(**changes):
    settings = {
        "world_size": 1,
        "dataset_world_size": 1,
        "sharding_parallel_degree": -1,
        "tensor_parallel_degree": -1,
        "pipeline_parallel_degree": -1,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "unified_checkpoint": False,
        "load_sharded_model": False,
        "metric_for_best_model": None,
        "seed": 3,
    }
    return SimpleNamespace(**{**settings, **changes})


class SavingTrainer:
    """As PaddleNLP's Trainer: writes the new checkpoint, then asks for the old ones to be deleted."""

    def __init__(self, folder, interrupted=False):
        self.args = training_args(output_dir=str(folder), save_total_limit=1)
        self.state = SimpleNamespace(global_step=2, best_model_checkpoint=None)
        self.interrupted = interrupted

    def is_world_process_zero(self):
        return True

    def add_callback(self, callback):
        """The tests call none."""

    def _rotate_checkpoints(self, *args, **kwargs):
        pytest.fail("older checkpoints were deleted before the new one was whole")

    def _save_checkpoint(self, model, metrics=None):
        self.compared = metrics
        (Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}").mkdir(exist_ok=True)
        self._rotate_checkpoints(use_mtime=True)
        if self.interrupted:
            raise KeyboardInterrupt


class MarkingTrainer(MarksCheckpoints, SavingTrainer):
    """What the trainers of this package are."""

    def marker_state(self):
        return {"generation": 7}


def test_save_cut_short_leaves_the_checkpoint_before_it(tmp_path):
    checkpoint(tmp_path, 1, {"step": 1})
    with pytest.raises(KeyboardInterrupt):
        MarkingTrainer(tmp_path, interrupted=True)._save_checkpoint(None)
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_whole_save_is_marked_and_replaces_the_one_before_it(tmp_path):
    checkpoint(tmp_path, 1, {"step": 1})
    MarkingTrainer(tmp_path)._save_checkpoint(None)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    topology = {"data": 1, "sharding": 1, "tensor": 1, "pipeline": 1, "rows_per_step": 8, "unified": False}
    assert read_marker(tmp_path / "checkpoint-2") == {"step": 2, "seed": 3, "topology": topology, "generation": 7}


def test_a_save_has_nothing_of_a_run_before_that_was_overwritten(tmp_path):
    """As its optimizer, beside one saved without, or the samples for its next step."""
    (checkpoint(tmp_path, 2) / "optimizer.pdopt").write_text("")
    MarkingTrainer(tmp_path)._save_checkpoint(None)
    assert [path.name for path in (tmp_path / "checkpoint-2").iterdir()] == [MARKER]


@pytest.mark.parametrize("name", ["reward", "eval_reward"])
def test_an_evaluation_without_the_metric_of_the_best_checkpoint_chooses_none(tmp_path, name):
    """Of an evaluation in which nothing had a reward; as the first one it stayed the best for good."""
    trainer = MarkingTrainer(tmp_path)
    trainer.args.metric_for_best_model = name
    for trainer.state.global_step, reward, is_compared in ((1, math.nan, False), (2, 0.25, True)):
        metrics = {"eval_reward": reward, "eval_chrf": 40.0}
        trainer._save_checkpoint(None, metrics)
        assert trainer.compared == (metrics if is_compared else None)


def test_starting_over_forgets_the_checkpoints_of_the_run_before(tmp_path):
    earlier, later = (checkpoint(tmp_path, step, {"step": step}) for step in (400, 500))
    args = SimpleNamespace(output_dir=str(tmp_path))
    start_over(args, later)
    assert last_complete_checkpoint(tmp_path) == later
    start_over(args, earlier)  # resume_from_checkpoint
    assert last_complete_checkpoint(tmp_path) == earlier
    start_over(args, None)  # overwrite_output_dir
    newer = checkpoint(tmp_path, 50, {"step": 50})
    assert last_complete_checkpoint(tmp_path) == newer


def test_checkpoint_that_training_cannot_go_on_from_is_told(tmp_path):
    path = checkpoint(tmp_path, 6, {"step": 6})
    args = training_args()
    with pytest.raises(UserError, match=r"has no optimizer state \(ignore_save_lr_and_optim\)"):
        check_resumable(args, path, {"step": 6})
    (path / "optimizer.pdopt").write_bytes(b"")
    check_resumable(args, path, {"step": 6}, updates_per_rollout=3)
    with pytest.raises(UserError, match="saved after step 6, in the middle of what are rollouts of 4 optimizer steps"):
        check_resumable(args, path, {"step": 6}, updates_per_rollout=4)
    divided = asdict(Topology(data=1, sharding=2, tensor=1, pipeline=1, rows_per_step=8, unified=False))
    with pytest.raises(UserError, match=r"saved in parts by 2 processes \(sharding 2\).* laid out over 1 process:"):
        check_resumable(args, path, {"step": 6, "topology": divided})
    args.load_sharded_model = True
    check_resumable(args, path, {"step": 6, "topology": divided})


def topology(**changes):
    one = {"data": 1, "sharding": 1, "tensor": 1, "pipeline": 1, "rows_per_step": 8, "unified": False}
    return Topology(**{**one, **changes})


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ({}, {"data": 4}),
        ({"sharding": 2}, {"sharding": 2, "data": 2}),
        ({"unified": True, "tensor": 2, "sharding": 2}, {"unified": True, "data": 3}),
        ({"tensor": 2}, {"tensor": 2, "unified": True}),
    ],
)
def test_layouts_that_a_checkpoint_fits(tmp_path, saved, now):
    check_topology(tmp_path, asdict(topology(**saved)), topology(**now))
    check_topology(tmp_path, None, topology(**now))


@pytest.mark.parametrize(
    ("saved", "now", "sentence"),
    [
        (
            {"sharding": 2},
            {},
            r"by 2 processes \(sharding 2\), and this run is laid out over 1 process:",
        ),
        ({}, {"tensor": 2}, r"by 1 process, and this run is laid out over 2 processes \(tensor 2\)"),
        ({"sharding": 2}, {"sharding": 2, "pipeline": 2}, r"4 processes \(sharding 2 x pipeline 2\)"),
        ({}, {"sharding": 2, "unified": True}, "saved in parts by 1 process"),
        ({"unified": True}, {}, "is a unified one: set unified_checkpoint: true"),
        ({"unified": True}, {"unified": True, "rows_per_step": 16}, "with 8 rows in an optimizer step.* has 16"),
    ],
)
def test_layouts_that_a_checkpoint_does_not_fit(tmp_path, saved, now, sentence):
    with pytest.raises(UserError, match=sentence):
        check_topology(tmp_path, asdict(topology(**saved)), topology(**now))


class Saved:
    """A model or tokenizer that writes `files` and then fails when told to."""

    config = SimpleNamespace(tensor_parallel_degree=1)

    def __init__(self, files, fails=False):
        self.files, self.fails = files, fails

    def save_pretrained(self, folder, safe_serialization=True):
        for name, text in self.files.items():
            (Path(folder) / name).write_text(text)
        if self.fails:
            raise OSError("disk full")


def trainer_that_saves(text, fails=False):
    return SimpleNamespace(
        args=SimpleNamespace(world_size=1),
        is_world_process_zero=lambda: True,
        model=Saved({"model.safetensors": text, "config.json": text}, fails),
        tokenizer=Saved({"tokenizer.json": text}),
    )


def test_a_save_that_fails_half_way_leaves_the_earlier_model_whole(tmp_path):
    save_final(trainer_that_saves("old"), tmp_path)
    with pytest.raises(OSError, match="disk full"):
        save_final(trainer_that_saves("new", fails=True), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("model.safetensors", "config.json", "tokenizer.json"), "old"
    )


def test_weights_of_an_earlier_model_are_not_left_beside_the_new_ones(tmp_path):
    """An index of earlier shards would be loaded in place of the one new file."""
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for name in (*shards, "model.safetensors.index.json", "reward_model.json", "value_head.safetensors", "README.md"):
        (tmp_path / name).write_text("old")
    save_final(trainer_that_saves("new"), tmp_path)
    new = dict.fromkeys(("model.safetensors", "config.json", "tokenizer.json"), "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {**new, "README.md": "old"}
