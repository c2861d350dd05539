"""Argument files of a few keys, prepared as a run would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from grrm.config import Launch, RLConfig, prepare

RL = {
    "output_dir": "out",
    "actor_model_name_or_path": "Qwen/Qwen2.5-0.5B",
    "train_datasets": "rl.jsonl",
    "rollout_n": 4,
    "max_prompt_len": 64,
    "max_dec_len": 32,
    "per_device_train_batch_size": 4,
    "max_steps": 20,
    "save_steps": 10,
}


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Any]:
    """The configuration of a stage, by default RL, from its few keys and others; nothing of it has to exist."""

    def read(stage: Any = RLConfig, base: dict[str, Any] = RL, **changes: object) -> Any:
        path = tmp_path / "X.yaml"
        path.write_text(yaml.safe_dump({**base, **changes}))
        return prepare(stage, path, (), Launch("cpu", 1), check_machine=False).config

    return read
