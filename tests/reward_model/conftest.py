"""Rows on disk, and the settings of a run on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rl_processes import TinyWorld
from support.rows import write_jsonl


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSON lines to a file of a name."""

    def _write(rows: list[dict[str, Any]], name: str = "groups.jsonl") -> Path:
        path = tmp_path / name
        return write_jsonl(path, rows)

    return _write


@pytest.fixture
def settings(world: TinyWorld, tmp_path: Path) -> Callable[..., list[str]]:
    """What follows the argument file on the command line, `output_dir` being a folder of the test."""

    def _settings(data: Path, output: str = "out", **changes: str) -> list[str]:
        values = {
            "model_name_or_path": str(world.policy),
            "train_datasets": str(data),
            "output_dir": str(tmp_path / output),
            "report_to": "none",
            "per_device_train_batch_size": "8",
            "gold_scale": "10",
            "val_size": "0",
            "evaluation_strategy": "no",
            "max_steps": "4",
            "save_steps": "4",
            "warmup_steps": "0",
            "logging_steps": "1",
            **changes,
        }
        return [text for key, value in values.items() for text in (f"--{key}", value)]

    return _settings
