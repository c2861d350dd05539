"""Whitening, running reward moments, and normalisation of advantages and of rewards by length."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.advantages import Moments, Rollout, without_length

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.advantages.interface import AdvantageInputs
from grrm.algorithms.advantages.moments import (
    RunningMoments,
    length_neutral,
    normalize_advantages,
    whiten,
)


@pytest.mark.parametrize("mask_RT", [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]])
def test_tokens_that_leave_nothing_to_compare_are_whitened_to_zero(mask_RT):
    assert not whiten(np.ones((2, 3)), np.array(mask_RT)).any()


def test_whitened_tokens_have_mean_zero_and_variance_one():
    rng = np.random.default_rng(0)
    values_RT, mask_RT = rng.normal(3, 5, (6, 9)), rng.random((6, 9)) < 0.6
    white = whiten(values_RT, mask_RT)
    assert abs(white[mask_RT].mean()) < 1e-12
    assert abs(white[mask_RT].var(ddof=1) - 1) < 1e-8
    assert not white[~mask_RT].any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(-100, 100) | st.just(np.nan), min_size=1, max_size=6), min_size=1, max_size=4))
def test_rewards_are_normalised_by_the_moments_of_all_batches_so_far(batches):
    ours, theirs = RunningMoments(), Moments()
    for batch in batches:
        ours.update(np.array(batch))
        np.testing.assert_allclose(ours.normalize(np.array(batch)), theirs.normalised(batch), rtol=1e-6, atol=1e-6)


def test_batch_without_scores_leaves_moments_alone_and_one_score_has_no_spread():
    moments = RunningMoments()
    moments.update(np.array([np.nan, np.nan]))
    assert moments == RunningMoments()
    assert moments.normalize(np.array([4.0])) == pytest.approx(4.0)
    moments.update(np.array([4.0]))
    assert moments == RunningMoments(mean=4.0, var=0.0, count=1)
    assert moments.normalize(np.array([4.0])) == 0


def test_resumed_moments_go_on_bit_for_bit():
    rng = np.random.default_rng(1)
    straight, first = RunningMoments(), RunningMoments()
    batches = rng.normal(size=(4, 5))
    for batch in batches[:2]:
        straight.update(batch)
        first.update(batch)
    resumed = RunningMoments()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for batch in batches[2:]:
        straight.update(batch)
        resumed.update(batch)
    assert resumed == straight


def test_normalised_advantages_ignore_what_is_masked():
    advantages_RT, mask_RT = np.array([[1.0, 3.0, np.nan], [5.0, 1e9, 7.0]]), np.array([[1, 1, 0], [1, 0, 1]])
    expected = (np.array([1, 3, 5, 7]) - 4) / (np.std([1, 3, 5, 7], ddof=1) + 1e-8)
    normalized_RT = normalize_advantages(advantages_RT, mask_RT)
    np.testing.assert_allclose(normalized_RT[mask_RT > 0], expected)
    assert not normalized_RT[mask_RT == 0].any()
    assert not normalize_advantages(advantages_RT, mask_RT * 0).any()
    np.testing.assert_allclose(normalize_advantages(np.array([[1.0, 3.0]]), np.ones((1, 2))), [[-(0.5**0.5), 0.5**0.5]])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_length_neutral_rewards_are_those_of_the_formula(seed):
    rng = np.random.default_rng(seed)
    groups, lengths, rewards = np.repeat(np.arange(5), 4), rng.integers(1, 30, 20), rng.normal(size=20)
    rewards[rng.integers(20)] = np.nan
    rewards[groups == rng.integers(10)] = 0.5  # in half of the cases one group's are equal
    mask_RT = np.arange(30) < lengths[:, None]
    fixed = rng.random(20) < rng.choice([0.0, 0.3])
    neutral = length_neutral(AdvantageInputs(rewards, groups, mask_RT, judged_R=~fixed)).rewards_R
    expected = without_length(
        Rollout(rewards.tolist(), groups.tolist(), lengths.tolist(), [], {}, fixed=fixed.tolist())
    )
    np.testing.assert_allclose(neutral, expected, atol=1e-9)


def test_fixed_rewards_of_responses_that_ran_on_are_no_length_bias_of_the_judge():
    """The judge has none here: what failed at the limit must not make it one, nor get back what it lost."""
    rewards, lengths = np.array([0.0, 0.5, 0.7, 0.5, 0.0, 0.6, 0.8, 0.6]), np.array([256, 20, 30, 45] * 2)
    mask_RT, is_fixed_R = np.arange(256) < lengths[:, None], lengths == 256
    before = AdvantageInputs(rewards, np.repeat([0, 1], 4), mask_RT, judged_R=~is_fixed_R)
    translations = AdvantageInputs(rewards[~is_fixed_R], np.repeat([0, 1], 3), mask_RT[~is_fixed_R])
    neutral_R = length_neutral(before).rewards_R
    np.testing.assert_array_equal(neutral_R[is_fixed_R], 0)
    np.testing.assert_array_equal(neutral_R[~is_fixed_R], length_neutral(translations).rewards_R)


def test_a_group_of_equal_scores_has_no_advantages_by_length():
    """Divided by the group's deviation, the correction of a small bias would be as large as any other advantage."""
    rewards, lengths = np.array([0.4, 0.5, 0.6, 0.8, 0.8, 0.8]), np.array([20, 30, 45, 10, 20, 40])
    inputs = AdvantageInputs(rewards, np.repeat([0, 1], 3), np.arange(45) < lengths[:, None])
    neutral = length_neutral(inputs)
    np.testing.assert_array_equal(neutral.rewards_R[3:], 0.8)
    assert not ADVANTAGE_RULES["grpo"](neutral)[3:].any()
    first = AdvantageInputs(rewards[:3], np.zeros(3), inputs.mask_RT[:3])
    np.testing.assert_array_equal(neutral.rewards_R[:3], length_neutral(first).rewards_R)


def test_responses_of_one_length_keep_their_rewards_to_the_bit():
    before = AdvantageInputs(np.array([0.1, 0.7, np.nan]), np.zeros(3), np.arange(9) < np.array([[5], [5], [9]]))
    np.testing.assert_array_equal(length_neutral(before).rewards_R, before.rewards_R)
