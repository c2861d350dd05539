"""The oracle's own formulas against the registered functions, which stand in for those it has none of."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from autograd import elementwise_grad
from oracle import registered
from oracle.advantages import RULES, Rollout
from oracle.objective import POLICY_LOSSES, Inputs

ARGUMENTS = {
    "clip_range_ratio": 0.2,
    "clip_range_ratio_low": 0.1,
    "clip_range_ratio_high": 0.3,
    "dual_clip_ratio": 1.4,
    "sapo_tau_pos": 0.7,
    "sapo_tau_neg": 1.4,
    "kl_coeff": 0.1,
    "gamma": 1.0,
    "clip_range_score": 0.8,
    "span_weight": 0.3,
}


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, Inputs]:
    """Log-probs of six responses of different lengths, one without a reward, and what a loss reads beside them."""
    mask = np.arange(7)[None] < np.array([7, 3, 1, 5, 6, 2])[:, None]
    mask[3] = False
    old, change = -rng.exponential(2.0, mask.shape), rng.normal(0, 0.2, mask.shape)
    others = {"old": old, "engine": old, "reference": old, "advantages": rng.normal(size=(6, 1)) * mask}
    return old + change, Inputs(**others, mask=mask, width=7, arguments=ARGUMENTS)


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_a_registered_loss_has_the_values_and_gradients_of_the_oracles(name: str) -> None:
    logprobs, given = inputs(np.random.default_rng(5))
    found: list[Any] = []
    for loss in (POLICY_LOSSES[name], partial(registered._registered_loss, name)):
        values, ratio, clipped = loss(logprobs, given)
        gradient = elementwise_grad(lambda x, loss=loss: loss(x, given)[0] * given.mask)(logprobs)
        found.append([part * given.mask for part in (values, ratio, gradient, *clipped.values())])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(found[0][2]) > 5


@pytest.mark.parametrize("name", sorted(set(RULES) - {"gae"}))
def test_a_registered_rule_has_the_values_of_the_oracles(name: str) -> None:
    rng = np.random.default_rng(6)
    rewards = [0.3, 0.9, float("nan"), 0.1, -1.2, 0.5, float("nan"), float("nan"), 0.7]
    lengths = [3, 1, 2, 4, 2, 6, 1, 2, 5]
    kl, severities = ([numbers(size=n) for n in lengths] for numbers in (rng.normal, rng.exponential))
    rollout = Rollout(rewards, [0, 0, 0, 1, 1, 1, 2, 2, 2], lengths, kl, ARGUMENTS, severities=severities)
    ours, theirs = RULES[name](rollout), registered._registered_rule(name, rollout)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    assert any(row.any() for row in ours)
