"""Corpora that can be built by name: module NAME of this folder has the function `build_NAME`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grrm.data.corpora.pairs import CorpusFiles

CORPORA = ("phrases", "terms")


def corpus_builder(name: str) -> Callable[..., CorpusFiles]:
    """What writes corpus `name` of CORPORA into a folder. Imported only now: a corpus may need packages of its own."""
    module = import_module(f"{__name__}.{name}")
    builder: Callable[..., CorpusFiles] = getattr(module, f"build_{name}")
    return builder
