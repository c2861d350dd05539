"""The trainer's loss on one micro-batch, without a Trainer around it."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from support.tiny_policy import random_policy

from grrm.config.derive_objective import policy_loss_config
from grrm.errors import UserError
from grrm.paddlenlp_api.training import Trainer
from grrm.parallel.data_ranks import DataRanks
from grrm.rl.batch import make_batch
from grrm.rl.experience import Row
from grrm.rl.losses.aggregation import count_denominators
from grrm.rl.metrics import StepMetrics
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.training.checkpoints import MarksCheckpoints
from grrm.training.records import MetersTokens


def test_tokens_are_scored_under_the_casts_of_the_loss(monkeypatch):
    casts, seen = [], []

    @contextmanager
    def automatic_casts(_):
        casts.append("on")
        yield
        casts.pop()

    monkeypatch.setattr(MarksCheckpoints, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(GroupPolicyTrainer, "autocast_smart_context_manager", automatic_casts)

    def make(step, casts_of_the_loss):
        with casts_of_the_loss():
            seen.append([*casts])

    config = SimpleNamespace(min_learning_rate=None, eval_on_start=False, pipeline_parallel_degree=-1)
    plan, tokenizer = SimpleNamespace(micro_batches_per_update=1), SimpleNamespace(pad_token_id=0)
    sampler = SimpleNamespace(prompts=[], config=config, plan=plan, ranks=DataRanks(0, 1))
    maker = SimpleNamespace(sampler=sampler, make=make)
    trainer = GroupPolicyTrainer(model=None, args=None, record=None, maker=maker, tokenizer=tokenizer)
    trainer.state = SimpleNamespace(global_step=0)
    trainer._make(1)
    assert seen == [["on"]]
    assert not casts


def test_gap_compares_the_engine_with_the_policy_that_sampled_and_not_with_a_later_one():
    config, two = policy_loss_config(), np.ones(2, dtype=np.float32)
    values = {name: getattr(config, name) for name in type(config).model_fields}
    trainer = SimpleNamespace(
        model=random_policy(vocab_size=64),
        config=SimpleNamespace(**values, temperature=1.0),
        plan=SimpleNamespace(micro_batches_per_update=1),
        ranks=DataRanks(0, 1),
        step_metrics=StepMetrics(DataRanks(0, 1), 1),
    )
    row = Row([1, 2], [3, 4], two, two, -2.5 * two, -2.0 * two, None)
    inputs = {"batch": make_batch([row], 0), "denominators": count_denominators(two[None], two[None])}
    GroupPolicyTrainer.compute_loss(trainer, trainer.model, inputs)
    collected = trainer.step_metrics.collect()
    assert (collected["logprob_gap_mean"], collected["logprob_gap_max"]) == (0.5, 0.5)


def test_what_follows_an_update_is_no_time_of_the_next_one(monkeypatch):
    """An evaluation or a checkpoint between two updates of a rollout."""
    monkeypatch.setattr(MetersTokens, "_maybe_log_save_evaluate", lambda trainer: trainer.work())
    now, recorded = [0.0], []
    monkeypatch.setattr("grrm.rl.trainer.time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(MetersTokens, "throughput", lambda trainer: {})
    monkeypatch.setattr(Trainer, "log", lambda *_: None)
    trainer = GroupPolicyTrainer.__new__(GroupPolicyTrainer)
    trainer.state, trainer.config = SimpleNamespace(global_step=0), SimpleNamespace(logprob_gap_limit=1.0)
    trainer.step_metrics = SimpleNamespace(collect=lambda: {"logprob_gap_mean": now[0] / 100})
    trainer.record = SimpleNamespace(metrics=lambda step, logs: recorded.append(logs["seconds_update"]))
    trainer._update_started, trainer._timed_step = 0.0, 0

    def log_and_evaluate():
        trainer.log({"loss": 0.0})
        now[0] += 40.0

    trainer.work = log_and_evaluate
    for step in (1, 2, 2):  # the last is that of early stopping
        now[0] += 2.0 * (step > trainer.state.global_step)
        trainer.state.global_step = step
        trainer._maybe_log_save_evaluate()
    now[0] += 5.0
    trainer.state.global_step = 3
    with pytest.raises(UserError, match=r"differ by 1\.29"):  # the step's numbers are on disk by then
        trainer._maybe_log_save_evaluate()
    assert recorded == [2.0, 2.0, 2.0, 5.0]
