"""Argument files of run_reward.py: what is read and refused before paddle is touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from grrm.config import RewardModelConfig
from grrm.errors import UserError

GOOD = {"output_dir": "out", "model_name_or_path": "Qwen/Qwen2.5-0.5B", "train_datasets": "groups.parquet"}
EVALUATED = {"evaluation_strategy": "steps", "val_size": 0.1}


@pytest.fixture
def read(prepared: Callable[..., Any]) -> Callable[..., RewardModelConfig]:
    return partial(prepared, RewardModelConfig, GOOD)


def test_defaults(read: Callable[..., RewardModelConfig]) -> None:
    values = read()
    found = (values.reward_model, values.compare, values.blocks, values.gold_scale, values.max_length)
    assert found == ("ranker", "none", 2, 10.0, 2048)


@pytest.mark.parametrize(
    "changes",
    [
        EVALUATED,
        {"evaluation_strategy": "steps", "val_size": 200},
        {"evaluation_strategy": "steps", "eval_datasets": "held.parquet"},
        {**EVALUATED, "load_best_model_at_end": True, "metric_for_best_model": "pair_accuracy"},
        {"reward_model": "pairwise", "compare": "none", "width": None},
        {"sharding": "stage1", "unified_checkpoint": False},
    ],
)
def test_what_is_read(read: Callable[..., RewardModelConfig], changes: dict[str, Any]) -> None:
    values = read(**changes)
    assert all(getattr(values, name) == value for name, value in changes.items())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_name_or_path": None}, "model_name_or_path is missing; give the folder of the model to start from."),
        ({"reward_model": "ranks"}, "(did you mean 'ranker'?)"),
        ({"reward_model": "pairwise", "blocks": 3}, "blocks is of the ranker"),
        ({"reward_model": "pairwise", "compare": "group"}, "compare is of the ranker"),
        ({**EVALUATED, "eval_datasets": "h.jsonl"}, "eval_datasets and val_size exclude each other"),
        ({**EVALUATED, "val_size": 1.5}, "val_size is 1.5; give a share below 1 or a whole number"),
        ({"val_size": 0.1}, "val_size needs evaluations"),
        ({"eval_datasets": "h.jsonl"}, "eval_datasets needs evaluations"),
        ({"evaluation_strategy": "steps"}, "evaluation_strategy steps needs eval_datasets"),
        ({"do_eval": True}, "do_eval needs eval_datasets"),
        ({**EVALUATED, "metric_for_best_model": "reward"}, "evaluations give eval_loss, eval_pair_accuracy, eval_corr"),
        ({"sharding": "stage3"}, "sharding stage3 is not supported"),
        ({"unified_checkpoint": True}, "unified_checkpoint: True is not supported: a reward model is saved whole"),
        ({"label_names": ["labels"]}, "every stage lays out its batches"),
        (
            {"learning_rate": 0, "backbone_learning_rate": 1e-5},
            "backbone_learning_rate 1e-05 trains nothing beside learning_rate 0, whose schedule it follows; raise",
        ),
        ({"gold_scale": 0}, "gold_scale is 0; it must be above 0"),
        ({"prompt_key": "prompt"}, "Unknown key 'prompt_key'"),
    ],
)
def test_what_is_refused(read: Callable[..., RewardModelConfig], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read(**changes)
    assert sentence in str(caught.value)
