"""Checkpoints that `grrm rank` cannot open end in one sentence each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from support.command_line import grrm
from support.tiny_checkpoint import write_tiny_checkpoint

LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


def no_template(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def other_architecture(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "gpt2"}))


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()


def tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["qwen2.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "np"})


DAMAGES = {
    shutil.rmtree: "does not exist",
    truncated: "its weights are damaged, get them again",
    other_architecture: "is of architecture 'gpt2'",
    no_tokenizer: "has no tokenizer that can be read",
    no_template: "has no chat template",
    tensor_missing: "lack norm.weight",
}


FOUND_LATE = (no_tokenizer, no_template, tensor_missing)  # by processes that have imported paddle


@pytest.mark.parametrize(
    "damage",
    [pytest.param(damage, marks=pytest.mark.slow if damage in FOUND_LATE else ()) for damage in DAMAGES],
    ids=lambda damage: damage.__name__,
)
def test_a_checkpoint_that_cannot_be_opened_is_one_sentence_and_status_2(original, tmp_path, damage):
    checkpoint = Path(shutil.copytree(original, tmp_path / "checkpoint"))
    damage(checkpoint)
    out = tmp_path / "out.jsonl"
    arguments = ["--model", checkpoint, "--chat-template", "checkpoint", "--out", out]
    done = grrm("rank", "-", *LANGUAGES, *arguments, stdin="a\tb\tc\n")
    assert done.returncode == 2
    assert DAMAGES[damage] in done.stderr
    assert str(checkpoint) in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*out.jsonl*"))
