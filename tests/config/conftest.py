"""Argument files of a few keys, prepared as a run would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from grrm.config import Launch, RLConfig, prepare
from grrm.errors import UserError

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
SFT_BASE = {"output_dir": "out", "model_name_or_path": "Qwen/Qwen2.5-0.5B", "train_datasets": "sft.jsonl"}
CPU = Launch("cpu", 1)


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Any]:
    """The configuration of a stage, by default RL, from its few keys and others; nothing of it has to exist."""

    def read(stage: Any = RLConfig, base: dict[str, Any] = RL, **changes: object) -> Any:
        path = tmp_path / "X.yaml"
        path.write_text(yaml.safe_dump({**base, **changes}))
        return prepare(stage, path, (), CPU, check_machine=False).config

    return read


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """What `prepare` makes of a stage's few keys with changes, of the command line, and without some."""

    def _run(changes=None, overrides=(), launch=CPU, stage=RLConfig, check_machine=False, drop=()):
        path = tmp_path / "X.yaml"
        content = {**(RL if stage is RLConfig else SFT_BASE), **(changes or {})}
        path.write_text(yaml.safe_dump({key: value for key, value in content.items() if key not in drop}))
        return prepare(stage, path, overrides, launch, check_machine)

    return _run


def refusal(run: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The one sentence with which `run` refuses, which names the file."""
    with pytest.raises(UserError) as caught:
        run(*args, **kwargs)
    message = str(caught.value)
    assert "X.yaml" in message
    assert "\n" not in message
    return message
