"""Checkpoints that `grrm rank` cannot open end in one sentence each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from support.command_line import grrm, mistake
from support.tiny_policy import write_tiny_checkpoint

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["qwen2.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "np"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "its weights are damaged, get them again"),
        pytest.param(tensor_missing, "lack norm.weight", marks=pytest.mark.slow),  # read by processes with paddle
    ],
)
def test_a_checkpoint_that_cannot_be_opened_is_one_sentence_and_status_2(original, tmp_path, damage, message):
    checkpoint = Path(shutil.copytree(original, tmp_path / "checkpoint"))
    damage(checkpoint)
    out = tmp_path / "out.jsonl"
    arguments = ["--model", checkpoint, "--chat-template", "checkpoint", "--out", out]
    done = grrm("rank", "-", *LANGUAGES, *arguments, stdin="a\tb\tc\n")
    said = mistake(done)
    assert message in said
    assert str(checkpoint) in said
    assert not list(tmp_path.glob("*out.jsonl*"))
