"""Advantage rules: loops beside segment reductions, invariances, degenerate batches."""

from __future__ import annotations

import dataclasses
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.advantages import RULES, Rollout, padded

from grrm.algorithms import ALGORITHMS
from grrm.algorithms.advantages import ADVANTAGE_RULES, AdvantageInputs
from grrm.algorithms.policy_losses import POLICY_LOSSES
from grrm.algorithms.policy_losses.interface import Aggregation

ARRAYS = ("rewards_R", "groups_R", "mask_RT", "kl_RT", "values_RT", "severities_RT")
GROUP_RULES = [name for name, rule in ADVANTAGE_RULES.items() if rule.compares_with_group]
rules = pytest.mark.parametrize("rule", ADVANTAGE_RULES.values(), ids=list(ADVANTAGE_RULES))
comparing = [name for name, rule in ADVANTAGE_RULES.items() if not rule.needs_critic]  # with other rows
comparing_rules = pytest.mark.parametrize("rule", [ADVANTAGE_RULES[name] for name in comparing], ids=comparing)
group_rules = pytest.mark.parametrize("rule", [ADVANTAGE_RULES[name] for name in GROUP_RULES], ids=GROUP_RULES)


def inputs_of(rewards, groups, lengths, width=None, **others):
    mask_RT = np.arange(width or max(lengths, default=0)) < np.array(lengths, dtype=int)[:, None]
    return AdvantageInputs(np.array(rewards, dtype=np.float64), np.array(groups, dtype=int), mask_RT, **others)


@st.composite
def batches(draw, unscored=True):
    n_rows, width = draw(st.integers(0, 12)), draw(st.sampled_from([0, 6, 6, 6]))
    reward = st.floats(-10, 10).map(lambda r: round(r, 3))
    rewards = draw(st.lists(reward | st.just(np.nan) if unscored else reward, min_size=n_rows, max_size=n_rows))
    groups = draw(st.lists(st.integers(-2, 3), min_size=n_rows, max_size=n_rows))
    lengths = draw(st.lists(st.integers(0, min(width, 5)), min_size=n_rows, max_size=n_rows))
    kl_RT, values_RT, spans_RT = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(3, n_rows, width))
    return inputs_of(
        rewards,
        groups,
        lengths,
        width=width,
        kl_RT=kl_RT,
        kl_coeff=draw(st.sampled_from([0.0, 0.1])),
        clip_range_score=8.0,
        values_RT=values_RT,
        gae_lambda=draw(st.sampled_from([0.0, 0.3, 1.0])),
        severities_RT=np.maximum(spans_RT, 0),
        span_weight=0.3,
    )


def by_oracle(name, inputs):
    """What each rule's formula says, row by row and token by token."""
    rows = inputs.mask_RT, inputs.kl_RT, inputs.values_RT, inputs.severities_RT
    masks, kl, values, severities = (
        [row[mask] for row, mask in zip(array, inputs.mask_RT, strict=True)] for array in rows
    )
    arguments = {
        key: getattr(inputs, key) for key in ("kl_coeff", "gamma", "gae_lambda", "clip_range_score", "span_weight")
    }
    rewards, groups, lengths = inputs.rewards_R.tolist(), inputs.groups_R.tolist(), list(map(len, masks))
    return padded(
        RULES[name](Rollout(rewards, groups, lengths, kl, arguments, values, severities)), inputs.mask_RT.shape
    )


@pytest.mark.parametrize(("rule", "loss", "aggregation"), ALGORITHMS.values(), ids=list(ALGORITHMS))
def test_an_algorithm_is_a_rule_and_a_loss_with_its_aggregation(rule, loss, aggregation):
    assert rule in ADVANTAGE_RULES
    prescribed = POLICY_LOSSES[loss].aggregation
    assert aggregation in ([prescribed] if prescribed else get_args(Aggregation))


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=50, deadline=None)
@given(inputs=batches(), gamma=st.sampled_from([1.0, 0.5]))
def test_rule_equals_its_formula_written_as_loops(name, inputs, gamma):
    if name not in GROUP_RULES:  # which refuse a discount
        inputs = dataclasses.replace(inputs, gamma=gamma)
    actual = ADVANTAGE_RULES[name](inputs)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, by_oracle(name, inputs), rtol=1e-6, atol=1e-7)


@rules
@settings(max_examples=25, deadline=None)
@given(inputs=batches(), data=st.data())
def test_neither_row_order_nor_padding_changes_a_bit(rule, inputs, data):
    order = data.draw(st.permutations(range(len(inputs.rewards_R))))
    pad = ((0, 0), (data.draw(st.integers(0, 2)), data.draw(st.integers(0, 40))))
    moved = dataclasses.replace(
        inputs,
        rewards_R=inputs.rewards_R[order],
        groups_R=inputs.groups_R[order],
        mask_RT=np.pad(inputs.mask_RT[order], pad),
        kl_RT=np.pad(inputs.kl_RT[order], pad, constant_values=np.nan),
        values_RT=np.pad(inputs.values_RT[order], pad, constant_values=np.nan),
        severities_RT=np.pad(inputs.severities_RT[order], pad, constant_values=np.nan),
    )
    np.testing.assert_array_equal(rule(moved), np.pad(rule(inputs)[order], pad))


@rules
@settings(max_examples=20, deadline=None)
@given(inputs=batches())
def test_unscored_rows_get_zero_and_change_nothing_for_the_others(rule, inputs):
    before = {name: np.copy(getattr(inputs, name)) for name in ARRAYS}
    advantages_RT = rule(inputs)
    kept = ~np.isnan(inputs.rewards_R)
    assert not advantages_RT[~kept].any()
    assert not advantages_RT[~inputs.mask_RT].any()
    strange = {name: np.where(kept[:, None], getattr(inputs, name), np.nan) for name in ARRAYS[3:]}
    np.testing.assert_array_equal(rule(dataclasses.replace(inputs, **strange)), advantages_RT)
    without = dataclasses.replace(inputs, **{name: getattr(inputs, name)[kept] for name in ARRAYS})
    np.testing.assert_array_equal(rule(without), advantages_RT[kept])
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(inputs, name), array, err_msg=f"{name} was modified")


@group_rules
@settings(max_examples=20, deadline=None)
@given(inputs=batches(unscored=False), shifts=st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_a_constant_added_to_a_group_changes_nothing(rule, inputs, shifts):
    inputs = dataclasses.replace(inputs, clip_range_score=None)
    shifted = dataclasses.replace(inputs, rewards_R=inputs.rewards_R + np.array(shifts)[inputs.groups_R + 2])
    np.testing.assert_allclose(rule(shifted), rule(inputs), atol=1e-8)


@comparing_rules
@pytest.mark.parametrize("reward", [0.1, -7.3, 1e-12])
def test_equal_rewards_give_exactly_zero(rule, reward):
    assert not rule(inputs_of([reward] * 7, [0, 0, 0, 1, 1, 1, 1], [3, 1, 2, 4, 4, 4, 4])).any()


@pytest.mark.parametrize(("name", "base"), [("grpo_spans", "grpo"), ("grpo_spans_no_std", "grpo_no_std")])
@settings(max_examples=20, deadline=None)
@given(inputs=batches())
def test_without_error_spans_every_bit_is_that_of_the_base_rule(name, base, inputs):
    expected = ADVANTAGE_RULES[base](inputs).tobytes()
    weightless = dataclasses.replace(inputs, span_weight=0.0)
    for severities_RT in (np.zeros(inputs.mask_RT.shape), None):
        given = dataclasses.replace(inputs, severities_RT=severities_RT)
        assert ADVANTAGE_RULES[name](given).tobytes() == expected
    assert ADVANTAGE_RULES[name](weightless).tobytes() == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rewards_R": np.array([1.0, np.inf])}, "infinite"),
        ({"rewards_R": np.ones((2, 1))}, "vectors of one length"),
        ({"groups_R": np.zeros(3, dtype=int)}, "vectors of one length"),
        ({"mask_RT": np.ones((3, 2))}, r"shape \[2, T\]"),
        ({"kl_coeff": 0.1}, "kl_RT is missing"),
        ({"kl_coeff": 0.1, "kl_RT": np.ones((2, 5))}, "kl_RT has shape"),
        ({"kl_coeff": 0.1, "kl_RT": np.full((2, 2), np.nan)}, "not finite"),
    ],
)
def test_inconsistent_inputs_are_refused(changed, message):
    inputs = inputs_of([1.0, 2.0], [0, 0], [2, 2])
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(inputs, **changed)


@group_rules
def test_discount_is_refused_by_rules_that_score_whole_responses(rule):
    with pytest.raises(ValueError, match="gamma is"):
        rule(inputs_of([1, 2], [0, 0], [1, 1], gamma=0.9))
