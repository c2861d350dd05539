"""PaddleNLP's own argument files for RL, key by key: what its users have and start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FILES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("paddlenlp_argument_files.json").read_text())


def write_paddlenlp_file(name: str, folder: Path) -> Path:
    """The file as PaddleNLP has it; returns its path."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(FILES[name], sort_keys=False))
    return path
