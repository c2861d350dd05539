"""Advantages and targets of a policy with a critic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from grrm.algorithms.advantages import AdvantageInputs
from grrm.algorithms.advantages.gae import gae, value_fit, value_targets

MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
VALUES = np.array([[0.5, 0.25, 1.0, 9.0], [2.0, -1.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0]])


def batch(**changes: object) -> AdvantageInputs:
    given = {"rewards_R": np.array([4.0, np.nan, -2.0]), "values_RT": VALUES, **changes}
    return AdvantageInputs(groups_R=np.arange(3), mask_RT=MASK, **given)


def test_lambda_one_is_the_return_minus_the_value_and_targets_are_the_returns():
    inputs = batch(gae_lambda=1.0, gamma=0.5)
    returns_RT = np.array([[1.0, 2.0, 4.0, 0], [0, 0, 0, 0], [-0.25, -0.5, -1.0, -2.0]])
    np.testing.assert_allclose(value_targets(inputs), returns_RT)
    scored_RT = MASK * [[1], [0], [1]]
    np.testing.assert_allclose(gae(inputs), (returns_RT - VALUES) * scored_RT)


def test_what_the_critic_says_of_padding_and_of_unscored_rows_is_never_read():
    strange = np.where(MASK * [[1], [0], [1]], VALUES, np.nan)
    np.testing.assert_array_equal(gae(batch(values_RT=strange)), gae(batch()))
    np.testing.assert_array_equal(value_targets(batch(values_RT=strange)), value_targets(batch()))


def test_explained_variance_is_one_for_a_perfect_critic_zero_for_a_constant_one_and_negative_for_a_worse_one():
    perfect = value_targets(batch(gae_lambda=1.0, gamma=0.5))
    assert value_fit(batch(gae_lambda=1.0, gamma=0.5, values_RT=perfect))["explained_variance"] == pytest.approx(1.0)
    constant = batch(gae_lambda=1.0, gamma=0.5, values_RT=np.full(MASK.shape, 3.0))
    assert value_fit(constant)["explained_variance"] == pytest.approx(0.0)
    assert value_fit(batch(gae_lambda=1.0, gamma=0.5, values_RT=-perfect))["explained_variance"] < 0
    assert np.isnan(value_fit(batch(rewards_R=np.array([0.0, 0.0, 0.0]), gae_lambda=1.0))["explained_variance"])


def test_without_a_critic_there_is_nothing_to_fit():
    alone = dataclasses.replace(batch(), values_RT=None)
    assert value_targets(alone) is None
    assert value_fit(alone) == {}
    with pytest.raises(ValueError, match="needs values_RT"):
        gae(alone)


def test_values_that_are_not_finite_on_a_scored_token_are_refused():
    with pytest.raises(ValueError, match="values_RT is not finite"):
        batch(values_RT=np.where(np.arange(4) == 1, np.inf, VALUES))
