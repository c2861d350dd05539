"""From judged groups to rows: rows without a reward keep their place and teach nothing."""

from __future__ import annotations

import numpy as np
import pytest
from support.rolled import scored_group

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.gqm.groups import Status, Verdict
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapingConfig, shape_rewards
from grrm.rl.experience import advantage_inputs, mean_reward, training_rows
from grrm.rl.records import Judged, ModelOutputs, Scored


def test_table_has_one_row_per_sample_in_canonical_order():
    groups = [scored_group(0, [2, 3], [4.0, None]), scored_group(1, [1], [10.0])]
    inputs = advantage_inputs(groups)
    np.testing.assert_allclose(inputs.rewards_R, [0.4, np.nan, 1.0])
    np.testing.assert_array_equal(inputs.groups_R, [0, 0, 1])
    np.testing.assert_array_equal(inputs.mask_RT, [[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    assert inputs.kl_RT is None


def test_table_says_which_rewards_are_scores_and_which_stand_for_one():
    rolled = scored_group(0, [2, 3, 1], [4.0, None, 8.0])
    verdict = Verdict((Status.SCORED, Status.UNPARSABLE_CANDIDATE, Status.DUPLICATE), (4.0, None, 4.0))
    shaped = shape_rewards(rolled.rolled.group, verdict, ShapingConfig(default_reward=-0.1), FailurePolicy())
    inputs = advantage_inputs([Scored(Judged(rolled.rolled, verdict), shaped)])
    np.testing.assert_allclose(inputs.rewards_R, [0.4, -0.1, 0.4])
    np.testing.assert_array_equal(inputs.judged_R, [True, False, True])


def constants(lengths, value):
    return [np.full(length, value, dtype=np.float32) for length in lengths]


def test_kl_is_policy_minus_reference_where_every_group_has_both():
    policy, both = (ModelOutputs(constants([2, 1], -1.0), ref) for ref in (None, constants([2, 1], -1.25)))
    last = scored_group(1, [1], [3.0], ModelOutputs(constants([1], -1.0), constants([1], -1.25)))
    inputs = advantage_inputs([scored_group(0, [2, 1], [1.0, 2.0], both), last], kl_coeff=0.1)
    np.testing.assert_allclose(inputs.kl_RT, [[0.25, 0.25], [0.25, 0], [0.25, 0]])
    assert advantage_inputs([scored_group(0, [2, 1], [1.0, 2.0], policy), last]).kl_RT is None


def test_values_of_a_critic_are_those_of_every_group_or_none():
    first = scored_group(0, [2, 1], [1.0, 2.0], ModelOutputs(values=[np.array([0.5, 0.25]), np.array([1.0])]))
    groups = [first, scored_group(1, [1], [3.0], ModelOutputs(values=[np.array([2.0])]))]
    np.testing.assert_array_equal(advantage_inputs(groups).values_RT, [[0.5, 0.25], [1, 0], [2, 0]])
    assert advantage_inputs([first, scored_group(1, [1], [3.0])]).values_RT is None


def test_rows_without_a_reward_keep_their_place_with_an_empty_mask():
    groups = [scored_group(0, [2, 3, 1], [4.0, None, 8.0]), scored_group(1, [1, 2], [1.0, 3.0])]
    advantages_RT = ADVANTAGE_RULES["dr_grpo"](advantage_inputs(groups))
    rows = training_rows(groups, advantages_RT)
    assert [[row.token_ids for row in members] for members in rows] == [one.rolled.token_ids for one in groups]
    assert [[row.mask_T.tolist() for row in members] for members in rows] == [
        [[1, 1], [0, 0, 0], [1]],
        [[1], [1, 1]],
    ]
    flat = [row.advantages_T for members in rows for row in members]
    for row, expected in zip(flat, [[-0.2] * 2, [0] * 3, [0.2], [-0.1], [0.1] * 2], strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-12)
    assert rows[0][1].length == 3 + 3
    assert rows[0][0].old_logprobs_T is None
    assert rows[0][0].returns_T is None


def test_rows_have_their_own_targets_of_the_critic():
    groups = [scored_group(0, [2, 3], [4.0, None]), scored_group(1, [1, 2], [1.0, 3.0])]
    returns_RT = np.arange(12.0).reshape(4, 3)
    rows = [row for members in training_rows(groups, -returns_RT, returns_RT) for row in members]
    assert [row.returns_T.tolist() for row in rows] == [[0, 1], [3, 4, 5], [6], [9, 10]]
    assert [row.advantages_T.tolist() for row in rows] == [[0, -1], [-3, -4, -5], [-6], [-9, -10]]


def test_mean_reward_is_over_scored_rows_and_nan_without_any():
    mean, std = mean_reward([scored_group(0, [1, 1, 1], [2.0, None, 4.0])])
    assert (mean, std) == (pytest.approx(0.3), pytest.approx(0.1))
    assert all(np.isnan(value) for value in mean_reward([scored_group(0, [1], [None])]))
