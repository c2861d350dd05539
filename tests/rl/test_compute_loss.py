"""The trainer's loss on one micro-batch, without a Trainer around it."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.rl_processes import MODEL

from grrm.config.derive_objective import policy_loss_config
from grrm.config.keys.objective import PolicyLossConfig
from grrm.models import token_scores
from grrm.models.policy import policy_class
from grrm.parallel.data_ranks import DataRanks
from grrm.rl.batch import make_batch
from grrm.rl.experience import Row
from grrm.rl.losses import objective
from grrm.rl.losses.aggregation import count_denominators
from grrm.rl.metrics import StepMetrics
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.training.checkpoints import MarksCheckpoints


@pytest.fixture(scope="module")
def model():
    paddle.seed(5)
    cls = policy_class("qwen2")
    sizes = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    return cls(cls.config_class(**sizes, vocab_size=64))


def row(old: float | None, engine: float) -> Row:
    """Two response tokens without an advantage, so that the policy loss alone has no gradient."""
    two = np.ones(2, dtype=np.float32)
    return Row([1, 2], [3, 4], 0 * two, two, engine * two, None if old is None else old * two, None)


def trainer(model, config: PolicyLossConfig) -> SimpleNamespace:
    ranks = DataRanks(0, 1)
    return SimpleNamespace(
        model=model,
        config=SimpleNamespace(**{name: getattr(config, name) for name in type(config).model_fields}, temperature=1.0),
        plan=SimpleNamespace(micro_batches_per_update=1),
        maker=SimpleNamespace(ranks=ranks),
        step_metrics=StepMetrics(ranks, 1),
    )


def compute(model, trainer: SimpleNamespace, one: Row) -> float:
    """The largest gradient of any parameter."""
    denominators = count_denominators(one.mask_T[None], one.advantages_T[None])
    inputs = {"batch": make_batch([one], 0), "denominators": denominators}
    GroupPolicyTrainer.compute_loss(trainer, model, inputs).backward()
    largest = max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)
    model.clear_gradients()
    return largest


def test_tokens_are_scored_under_the_casts_of_the_loss(monkeypatch):
    casts, seen = [], []

    @contextmanager
    def automatic_casts(_):
        casts.append("on")
        yield
        casts.pop()

    monkeypatch.setattr(MarksCheckpoints, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(GroupPolicyTrainer, "autocast_smart_context_manager", automatic_casts)
    maker = SimpleNamespace(prompts=[], ranks=DataRanks(0, 1), score_tokens=lambda _: seen.append([*casts]))
    config = SimpleNamespace(min_learning_rate=None, eval_on_start=False)
    plan, tokenizer = SimpleNamespace(micro_batches_per_update=1), SimpleNamespace(pad_token_id=0)
    unused = {"model": None, "args": None, "record": None}
    GroupPolicyTrainer(**unused, config=config, maker=maker, plan=plan, tokenizer=tokenizer)
    maker.score_tokens([])
    assert seen == [["on"]]
    assert not casts


def test_entropy_bonus_reaches_the_parameters(model):
    assert compute(model, trainer(model, policy_loss_config()), row(None, -1.0)) == 0.0
    assert compute(model, trainer(model, policy_loss_config(entropy_coeff=0.1)), row(None, -1.0)) > 0.0


def test_gap_compares_the_engine_with_the_policy_that_sampled_and_not_with_a_later_one(model):
    later = trainer(model, policy_loss_config())
    compute(model, later, row(old=-2.0, engine=-2.5))
    collected = later.step_metrics.collect()
    assert (collected["logprob_gap_mean"], collected["logprob_gap_max"]) == (0.5, 0.5)


def test_few_frames_lie_between_the_trainer_and_the_loss_and_none_of_them_in_the_model(model, monkeypatch):
    paths = []
    real = objective.aggregate

    def noted(*args):
        frames = traceback.extract_stack()
        start = [frame.name for frame in frames].index("compute_loss")
        paths.append([Path(frame.filename).name for frame in frames[start:-1]])
        return real(*args)

    monkeypatch.setattr(objective, "aggregate", noted)
    config = policy_loss_config(sft_coeff=0.1, entropy_coeff=0.1)
    for limit in (token_scores.LOGITS_AT_ONCE, 0):
        monkeypatch.setattr(token_scores, "LOGITS_AT_ONCE", limit)
        compute(model, trainer(model, config), row(None, -1.0))
    assert max(map(len, paths)) <= 5  # and aggregate itself
    assert {name for path in paths for name in path} == {"trainer.py", "chunked_loss.py", "batch.py", "objective.py"}
