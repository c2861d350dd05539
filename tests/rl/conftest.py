"""A policy small enough to train in a test, its tokenizer and data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.rl_processes import TinyWorld
from support.tiny_policy import write_policy


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """A corpus of a few hundred phrases, its BPE, and a randomly initialised policy."""
    from grrm.data.bpe import corpus_texts, train_bpe
    from grrm.data.convert import convert_to_src_tgt
    from grrm.data.corpora.phrases import build_phrases

    folder = tmp_path_factory.mktemp("world")
    build_phrases(folder, 200, 20, ["en", "de", "es"], seed=1)
    train_bpe(corpus_texts(folder / "train.parquet"), folder / "policy", vocab_size=512)
    convert_to_src_tgt(folder / "train.parquet", folder / "rl.jsonl", "Tower")
    write_policy(folder / "policy")
    return TinyWorld(folder, folder / "policy", folder / "rl.jsonl")


@pytest.fixture(scope="session")
def save_policy() -> Callable[..., None]:
    """Save a randomly initialised policy beside the tokenizer of a folder; further arguments change its shape."""
    return write_policy
