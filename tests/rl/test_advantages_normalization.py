"""Whitening, running reward moments, advantage normalisation, and where scores and returns go."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.algorithms.advantages.interface import AdvantageInputs
from grrm.algorithms.advantages.moments import (
    RunningMoments,
    group_moments,
    length_neutral,
    normalize_advantages,
    whiten,
)
from grrm.algorithms.advantages.reinforce_plus_plus import add_final_score, discounted_returns


def test_whitening_one_token_has_no_variance():
    with pytest.raises(ValueError, match="at least two"):
        whiten(np.ones((2, 3)), np.array([[0, 1, 0], [0, 0, 0]]))


def test_whitened_tokens_have_mean_zero_and_variance_one():
    rng = np.random.default_rng(0)
    values_RT, mask_RT = rng.normal(3, 5, (6, 9)), rng.random((6, 9)) < 0.6
    white = whiten(values_RT, mask_RT)
    assert abs(white[mask_RT].mean()) < 1e-12
    assert abs(white[mask_RT].var(ddof=1) - 1) < 1e-8
    assert not white[~mask_RT].any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=6), min_size=1, max_size=4))
def test_running_mean_is_the_mean_of_everything_seen(batches):
    moments = RunningMoments()
    for batch in batches:
        moments.update(np.array([*batch, np.nan]))
    assert moments.count == sum(map(len, batches))
    np.testing.assert_allclose(moments.mean, np.mean(np.concatenate(batches)), atol=1e-9)


def test_first_batch_is_normalised_by_its_own_moments_and_nan_stays():
    moments = RunningMoments()
    rewards_R = np.array([1.0, np.nan, 3.0])
    moments.update(rewards_R)
    np.testing.assert_allclose(moments.normalize(rewards_R), [-(0.5**0.5), np.nan, 0.5**0.5], rtol=1e-7)


def test_batches_merge_by_their_own_unbiased_variances():
    moments = RunningMoments()
    moments.update(np.array([1.0, 3.0]))
    assert moments == RunningMoments(mean=2.0, var=2.0, count=2)
    moments.update(np.array([5.0, 6.0, 10.0]))  # mean 7, variance 7
    assert moments == RunningMoments(mean=5.0, var=(2 * 2 + 3 * 7 + 5**2 * 2 * 3 / 5) / 5, count=5)


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


def test_returns_do_not_flow_in_from_padding():
    rewards_RT = np.array([[1.0, 2.0, 100.0]])
    np.testing.assert_array_equal(discounted_returns(rewards_RT, np.array([[1, 1, 0]])), [[3, 2, 100]])


def test_score_goes_to_the_last_token_and_nowhere_without_tokens():
    mask_RT = np.array([[0, 1, 1, 0], [0, 0, 0, 0]])
    zeros_RT, scores_R = np.zeros((2, 4)), np.array([5.0, 7.0])
    np.testing.assert_array_equal(add_final_score(zeros_RT, scores_R, mask_RT), [[0, 0, 5, 0], [0, 0, 0, 0]])
    assert not zeros_RT.any()


def batch(rewards, groups, lengths):
    mask_RT = np.arange(max(lengths))[None, :] < np.array(lengths)[:, None]
    return AdvantageInputs(np.array(rewards, dtype=float), np.array(groups), mask_RT)


def test_rewards_that_are_all_length_become_equal_within_their_groups():
    groups, lengths = [0, 0, 0, 1, 1, 1], [2, 4, 8, 3, 6, 12]
    neutral = length_neutral(batch(3 + 0.7 * np.log(lengths), groups, lengths))
    np.testing.assert_allclose(group_moments(neutral.rewards_R, np.array(groups)).deviation_R, 0, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_length_neutral_rewards_do_not_depend_on_length_and_keep_group_means(seed):
    rng = np.random.default_rng(seed)
    groups, lengths = np.repeat(np.arange(5), 4), rng.integers(1, 30, 20)
    rewards = rng.normal(size=20)
    rewards[rng.integers(20)] = np.nan
    before = batch(rewards, groups, lengths)
    after = length_neutral(before)
    scored = ~np.isnan(rewards)
    np.testing.assert_array_equal(np.isnan(after.rewards_R), ~scored)
    for group in range(5):
        own = scored & (groups == group)
        np.testing.assert_allclose(after.rewards_R[own].mean(), rewards[own].mean(), atol=1e-12)
    logs = group_moments(np.where(scored, np.log(lengths), np.nan), groups).deviation_R[scored]
    assert abs(np.dot(after.rewards_R[scored], logs)) < 1e-9


def test_responses_of_one_length_keep_their_rewards_to_the_bit():
    before = batch([0.1, 0.7, np.nan], [0, 0, 0], [5, 5, 9])
    np.testing.assert_array_equal(length_neutral(before).rewards_R, before.rewards_R)
