"""When a stage runs again and when it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from grrm.demo.stages import Marks, Stage, digest_of, fingerprint_of


@pytest.fixture
def stage(tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("one")
    return Stage(
        name="seed1/sft",
        title="SFT",
        command=["python", f"{tmp_path}/train.py"],
        folder=tmp_path / "out" / "sft",
        reward_server=["--judge", "chrf"],
        inputs=[data],
        outputs=[tmp_path / "out" / "sft" / "model"],
    )


def finish(marks: Marks, stage: Stage, fingerprint: str) -> None:
    marks.begin(stage, fingerprint)
    (stage.folder / "model").write_text("weights")
    marks.finish(stage, fingerprint, 12.5)


def test_finished_stage_is_reused_until_an_output_disappears(tmp_path, stage):
    marks, fingerprint = Marks(tmp_path / "out" / "stages"), fingerprint_of(stage, {})
    assert not marks.is_done(stage, fingerprint)
    finish(marks, stage, fingerprint)
    assert marks.is_done(stage, fingerprint)
    assert marks.done(stage.name).seconds == 12.5
    assert not marks.is_done(stage, "another")
    (stage.folder / "model").unlink()
    assert not marks.is_done(stage, fingerprint)


def test_checkpoints_of_other_settings_are_never_resumed(tmp_path, stage):
    marks = Marks(tmp_path / "out" / "stages")
    marks.begin(stage, "f1")
    (stage.folder / "checkpoint-10").write_text("stale")
    marks.interrupt(stage, "f1", 30.0)
    assert marks.begin(stage, "f2") == 0.0
    assert not (stage.folder / "checkpoint-10").exists()


def test_training_resumes_in_its_folder_and_another_interrupted_stage_starts_from_an_empty_one(tmp_path, stage):
    marks = Marks(tmp_path / "out" / "stages")
    for training in (replace(stage, metrics=stage.folder / "metrics.jsonl"), stage):
        marks.begin(training, "f1")
        (stage.folder / "checkpoint-10").mkdir()
        marks.interrupt(training, "f1", 30.0)
        assert marks.begin(training, "f1") == 30.0
        assert (stage.folder / "checkpoint-10").exists() == (training is not stage)


def test_rerun_of_a_finished_stage_starts_from_an_empty_folder(tmp_path, stage):
    marks = Marks(tmp_path / "out" / "stages")
    finish(marks, stage, "f1")
    (stage.folder / "checkpoint-10").write_text("old")
    marks.begin(stage, "f1")
    assert list(stage.folder.iterdir()) == []
    assert marks.done(stage.name) is None


def test_damaged_mark_counts_as_not_done(tmp_path, stage):
    marks = Marks(tmp_path / "stages")
    finish(marks, stage, "f1")
    (tmp_path / "stages" / "seed1-sft.done.json").write_text('{"fingerprint": "f1"')
    assert not marks.is_done(stage, "f1")


def test_fingerprint_follows_command_server_and_contents_but_not_the_place(tmp_path, stage):
    first = fingerprint_of(stage, {str(tmp_path): "ROOT"})
    moved = replace(stage, command=["python", "/elsewhere/train.py"])
    assert fingerprint_of(moved, {"/elsewhere": "ROOT"}) == first
    assert fingerprint_of(replace(stage, reward_server=["--judge", "bleu"]), {str(tmp_path): "ROOT"}) != first
    assert fingerprint_of(replace(stage, command=["python", "x"]), {}) != first
    stage.inputs[0].write_text("two")
    assert fingerprint_of(stage, {str(tmp_path): "ROOT"}) != first
    with pytest.raises(FileNotFoundError):
        fingerprint_of(replace(stage, inputs=[tmp_path / "missing"]), {})


def test_digest_of_a_folder_sees_names_and_contents_and_ignores_hidden_files(tmp_path):
    def folder(name: str, files: dict[str, str]) -> Path:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    base = digest_of(folder("a", {"x": "1", "sub/y": "2"}))
    assert digest_of(folder("b", {"x": "1", "sub/y": "2", ".hidden": "3"})) == base
    assert digest_of(folder("c", {"x": "1", "sub/y": "3"})) != base
    assert digest_of(folder("d", {"x": "1", "sub/z": "2"})) != base
