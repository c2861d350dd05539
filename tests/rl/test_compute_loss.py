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

from grrm.algorithms.policy_losses.interface import LossInputs
from grrm.config.derive_objective import policy_loss_config
from grrm.config.keys.objective import PolicyLossConfig
from grrm.models import token_scores
from grrm.models.policy import policy_class
from grrm.parallel.data_ranks import DataRanks
from grrm.rl.batch import make_batch
from grrm.rl.experience import Row, pad_right
from grrm.rl.losses import Denominators, count_denominators, objective, policy_objective
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


def trainer(model, config: PolicyLossConfig, temperature: float = 1.0, n_micro: int = 1, n_ranks: int = 1):
    """What `compute_loss` needs of a trainer."""
    ranks = DataRanks(0, n_ranks)
    return SimpleNamespace(
        model=model,
        config=SimpleNamespace(
            **{name: getattr(config, name) for name in type(config).model_fields}, temperature=temperature
        ),
        plan=SimpleNamespace(micro_batches_per_update=n_micro),
        ranks=ranks,
        step_metrics=StepMetrics(ranks, n_micro),
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


def test_loss_is_the_objective_at_the_temperature_and_denominators_of_the_run(model):
    """Responses scored one by one from their logits; a share of a larger batch, beside another rank's."""
    rng = np.random.default_rng(4)
    config = policy_loss_config(
        clip_range_ratio_low=0.05,
        clip_range_ratio_high=0.6,
        kl_loss_coeff=0.3,
        clip_range_score=0.02,
        entropy_coeff=0.1,
        sft_coeff=0.2,
        rollout_is="token",
        rollout_is_cap=1.2,
    )
    temperature, denominators = (
        0.7,
        Denominators(tokens=31.0, sequences=7.0, sft_tokens=11.0, sft_sequences=3.0, width=8),
    )
    lengths = (2, 4, 3)
    rows, columns = [], []
    for length, advantage in zip(lengths, (1.5, -0.5, 0.0), strict=True):
        prompt, response = rng.integers(1, 64, 3).tolist(), rng.integers(1, 64, length).tolist()
        with paddle.no_grad():
            output = model(paddle.to_tensor([prompt + response]))
        logits = (output[0] if isinstance(output, tuple) else output).numpy().reshape(3 + length, -1)[2:-1]
        logp = logits.astype(np.float64) / temperature
        logp -= np.log(np.exp(logp).sum(axis=1, keepdims=True))
        new_T = logp[np.arange(length), response]
        others = [new_T + 0.3 * rng.normal(size=length) for _ in range(3)]  # the old policy, the reference, the engine
        old_T, ref_T, engine_T = (one.astype(np.float32) for one in others)
        rows.append(Row(prompt, response, np.full(length, advantage), np.ones(length), engine_T, old_T, ref_T))
        entropy_T = -(np.exp(logp) * logp).sum(axis=1)
        columns.append((new_T, old_T, np.full(length, advantage), np.ones(length), ref_T, entropy_T, engine_T))
    tensors = [paddle.to_tensor(pad_right(column, 4)) for column in zip(*columns, strict=True)]
    expected = policy_objective(LossInputs(*tensors), config, denominators)
    one = trainer(model, config, temperature, n_micro=3, n_ranks=2)
    inputs = {"batch": make_batch(rows, 0), "denominators": denominators}
    loss = GroupPolicyTrainer.compute_loss(one, model, inputs)
    assert float(loss) == pytest.approx(3 * 2 * float(expected.loss), rel=2e-5)
    # Each response was in reach of the clips, or the agreement above would not tell them apart.
    assert 0 < float(expected.metrics["pg_clipfrac"]) < 9 / 31
    assert 0 < float(expected.metrics["rollout_is_capped"]) < 9 / 31
    assert GroupPolicyTrainer.compute_loss(one, model, inputs, return_outputs=True)[1] is None
