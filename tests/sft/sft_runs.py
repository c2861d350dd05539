"""Small runs of the supervised stage, and what they learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.rl_processes import CONFIGS, TinyWorld, train_here
from support.rows import write_jsonl
from support.tiny_models import naive_logits

from grrm.config import SFTConfig, load_config
from grrm.data.dataset import SftItem
from grrm.sft import run as sft_run

TINY = CONFIGS / "sft_tiny_argument.yaml"


def train(overrides: list[str], yaml: Path = TINY) -> None:
    train_here(sft_run.train, load_config(SFTConfig, yaml, overrides))


def label_logprobs(model: Any, item: SftItem) -> list[float]:
    """Of the tokens of a response, by the slow way through the model."""
    logits_TV = naive_logits(model, item.input_ids)
    logprobs_TV = logits_TV - np.logaddexp.reduce(logits_TV, axis=-1, keepdims=True)
    return [logprobs_TV[at - 1, item.input_ids[at]] for at in range(item.prompt_len, len(item.input_ids))]


def sft_settings(world: TinyWorld, tmp_path: Path, **settings: str) -> list[str]:
    rows = [{"src": f"say {i}", "tgt": str(i)} for i in range(10)]
    data = write_jsonl(tmp_path / "sft.jsonl", rows)
    values = {
        "init_from_config": "null",
        "model_name_or_path": str(world.policy),
        "tokenizer_name_or_path": str(world.policy),
        "train_datasets": str(data),
        "output_dir": str(tmp_path / "out"),
        "report_to": "none",
        "per_device_train_batch_size": "4",
        "max_steps": "-1",
        "num_train_epochs": "2",
        "logging_steps": "1",
        **settings,
    }
    return [text for key, value in values.items() for text in (f"--{key}", value)]
