"""Making the stand-in for FastDeploy importable, in this process and in others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fastdeploy_installed"


@contextmanager
def fastdeploy_on_path(folder: Path = FOLDER) -> Iterator[None]:
    """`import fastdeploy` finds the module in `folder`, in this process."""
    sys.path.insert(0, str(folder))
    sys.modules.pop("fastdeploy", None)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("fastdeploy", None)


def with_fastdeploy(folder: Path = FOLDER) -> dict[str, str]:
    """The environment of a process in which `import fastdeploy` finds the module in `folder`."""
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start_engine(folder: Path, model: Any, **settings: Any) -> Any:
    """A `FastDeployEngine` on the weights of `model`, saved in `folder`, over the stand-in."""
    from grrm.engine.fastdeploy_engine import FastDeployEngine

    model.save_pretrained(str(folder), safe_serialization=True)
    sizes = {"vocab_size": model.config.vocab_size, "max_positions": model.config.max_position_embeddings}
    return FastDeployEngine.start(folder, **sizes, **settings)
