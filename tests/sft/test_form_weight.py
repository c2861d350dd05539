"""Tokens that decide nothing weigh less, and those that decide are evaluated by themselves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sft.sft_runs import TINY, label_logprobs, sft_settings
from support.rl_processes import TinyWorld, train_here
from support.rows import write_jsonl

from grrm.config import SFTConfig, load_config
from grrm.data.dataset import SftItem
from grrm.errors import UserError
from grrm.models.policy import load_policy
from grrm.sft import run as sft_run
from grrm.sft.trainer import SftCollator, SftTrainer
from grrm.tracking.metrics_log import read_metrics


def weighted_batch(world: TinyWorld, items: list[SftItem], form_weight: float) -> tuple[dict, float, dict]:
    """The batch of these rows, its share of a loss over all of it, and its counts."""
    model = load_policy(world.policy)
    batch = SftCollator(0, form_weight=form_weight)(items)
    counts = SftTrainer.count(SimpleNamespace(), batch)
    trainer = SimpleNamespace(model=model, model_inputs=partial(SftTrainer.model_inputs, None))
    logprobs_N = SftTrainer.outputs(trainer, model, batch)
    return batch, float(SftTrainer.loss_share(SimpleNamespace(), logprobs_N, batch, counts)), counts


def test_form_weighs_less_than_what_is_decisive(world: TinyWorld) -> None:
    rows = [SftItem(0, [5, 6, 7, 8, 9], [], 2, "", decisive=(1,)), SftItem(1, [5, 9, 8], [], 1, "")]
    model, weights = load_policy(world.policy), [0.25, 1.0, 0.25, 1.0, 1.0]
    logprobs = [logprob for item in rows for logprob in label_logprobs(model, item)]
    _, loss, counts = weighted_batch(world, rows, 0.25)
    assert counts == {"tokens": sum(weights)}
    assert loss == pytest.approx(-np.dot(weights, logprobs) / sum(weights), rel=1e-4)
    by_row = [weighted_batch(world, [item], 0.25) for item in rows]
    assert sum(share * part["tokens"] for _, share, part in by_row) / counts["tokens"] == pytest.approx(loss, rel=1e-5)


def test_form_weight_of_one_changes_no_bit(world: TinyWorld) -> None:
    rows = [SftItem(0, [5, 6, 7, 8, 9], [], 2, "", decisive) for decisive in (None, (1,))]
    (batch, loss, counts), (same, same_loss, same_counts) = (weighted_batch(world, [row], 1.0) for row in rows)
    assert batch.keys() == same.keys()
    assert (loss, counts) == (same_loss, same_counts)


def test_a_form_without_weight_needs_decisive_tokens_in_every_row() -> None:
    rows = [SftItem(0, [5, 6, 7], [], 1, "", decisive) for decisive in ((), (1,))]
    with pytest.raises(UserError, match="form_weight is 0, and a row of train_datasets has no decisive token"):
        sft_run.check_form_weight(SFTConfig(form_weight=0.0), rows)
    sft_run.check_form_weight(SFTConfig(form_weight=0.0), rows[1:])
    sft_run.check_form_weight(SFTConfig(form_weight=0.1), rows)


def test_decisive_tokens_are_evaluated_by_themselves(world: TinyWorld, tmp_path: Path) -> None:
    held = {"evaluation_strategy": "steps", "eval_steps": "1", "max_steps": "1", "save_steps": "1", "val_size": "4"}
    overrides = sft_settings(world, tmp_path, **held, form_weight="0.1")
    config = load_config(SFTConfig, TINY, overrides)
    with pytest.raises(UserError, match=r"form_weight is 0.1, but no row of train_datasets says"):
        train_here(sft_run.train, config)
    rows = [{"src": f"say {i}", "tgt": f"is {i}", "decisive": [[3, 4]] if i % 3 else None} for i in range(10)]
    write_jsonl(tmp_path / "sft.jsonl", rows)
    train_here(sft_run.train, config)
    evaluated = read_metrics(tmp_path / "out")[-1]
    assert (
        evaluated["eval_loss_decisive_low"] <= evaluated["eval_loss_decisive"] <= evaluated["eval_loss_decisive_high"]
    )
    assert evaluated["eval_loss_decisive"] != evaluated["eval_loss"]
