from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.algorithms.advantages import AdvantageInputs, dr_grpo, grpo, grpo_no_std, rloo
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.rewards.failure_policy import DEFAULT_ACTIONS, FailureAction, FailurePolicy, RewardFailure
from grrm.rewards.group_filter import GroupSignal, classify_group
from grrm.rewards.shaping import OverlongConfig, ShapingConfig, overlong_penalty, shape_rewards

TASK = TranslationTask("Hallo", "de", "en", "Hello")
RECIPE = ShapingConfig(0.01, -0.04, OverlongConfig(max_resp_len=60, buffer_len=20, penalty_factor=0.04))


def group_of(texts, lengths=None):
    lengths = lengths or [5] * len(texts)
    return Group(
        "g",
        TASK,
        tuple(
            Candidate(f"c{i}", text or "", text, n_tokens)
            for i, (text, n_tokens) in enumerate(zip(texts, lengths, strict=True))
        ),
    )


def scored(*scores):
    return Verdict((Status.SCORED,) * len(scores), scores)


def test_reward_is_the_scaled_score_minus_the_length_penalty():
    shaped = shape_rewards(group_of(["a", "b"], [5, 50]), scored(8.0, 3.0), RECIPE, FailurePolicy())
    assert shaped.rewards == pytest.approx((0.08, 0.01))
    assert shaped.judged == pytest.approx((0.08, 0.03))


def test_each_duplicate_pays_for_its_own_length():
    group = group_of(["a", "a", "b"], [5, 60, 5])
    verdict = Verdict((Status.SCORED, Status.DUPLICATE, Status.SCORED), (8.0, 8.0, 3.0))
    assert shape_rewards(group, verdict, RECIPE, FailurePolicy()).rewards == pytest.approx((0.08, 0.04, 0.03))


def test_unparsable_candidate_gets_the_default_reward_unscaled_and_without_length_penalty():
    verdict = Verdict((Status.SCORED, Status.UNPARSABLE_CANDIDATE), (8.0, None))
    shaped = shape_rewards(group_of(["a", None], [5, 60]), verdict, RECIPE, FailurePolicy())
    assert shaped.rewards == pytest.approx((0.08, -0.04))
    assert shaped.judged[1] is None


def test_copies_of_a_lone_translation_are_better_than_no_translation_where_the_policy_contrasts_them():
    statuses = (Status.SINGLE_CANDIDATE,) * 3 + (Status.UNPARSABLE_CANDIDATE,)
    group, verdict = group_of(["a", "a", "a", None], [5, 5, 60, 5]), Verdict(statuses, (None,) * 4)
    contrast = FailurePolicy.from_mapping({"single_candidate": "contrast"})
    shaped = shape_rewards(group, verdict, RECIPE, contrast)
    assert shaped.rewards == pytest.approx((0.05, 0.05, 0.05, -0.04))
    assert classify_group(shaped) is GroupSignal.INFORMATIVE
    inputs = AdvantageInputs(np.asarray(shaped.rewards), np.zeros(4, dtype=np.int64), np.ones((4, 2)))
    for rule in (grpo, grpo_no_std, dr_grpo, rloo):
        advantages = rule(inputs)[:, 0]
        assert (advantages[:3] > 0).all()
        assert advantages[3] < 0
    assert shape_rewards(group, verdict, RECIPE, FailurePolicy()).rewards == (None, None, None, -0.04)


def test_nothing_is_contrasted_without_a_penalty_that_is_below_the_middle_score():
    lone = (Status.SINGLE_CANDIDATE,) * 2
    contrast = FailurePolicy.from_mapping({"single_candidate": "contrast"})
    assert shape_rewards(group_of(["a", "a"]), Verdict(lone, (None, None)), RECIPE, contrast).rewards == (None, None)
    mixed = Verdict((Status.SINGLE_CANDIDATE, Status.UNPARSABLE_CANDIDATE), (None, None))
    generous = replace(RECIPE, default_reward=0.05)
    assert shape_rewards(group_of(["a", None]), mixed, generous, contrast).rewards == (None, 0.05)


def test_unscored_candidates_pay_for_their_length_where_that_is_asked_for():
    verdict = Verdict((Status.UNPARSABLE_CANDIDATE,) * 3, (None,) * 3)
    group = group_of([None] * 3, [5, 50, 60])
    shaped = shape_rewards(group, verdict, replace(RECIPE, unscored_pay_length=True), FailurePolicy())
    assert shaped.rewards == pytest.approx((-0.04, -0.06, -0.08))
    assert shaped.before_penalties == (-0.04,) * 3  # exactly: a group of failures carries no signal
    assert shaped.judged == (None,) * 3
    masked = FailurePolicy.from_mapping({"unparsable_candidate": "mask"})
    shaped = shape_rewards(group, verdict, replace(RECIPE, unscored_pay_length=True), masked)
    assert shaped.rewards == shaped.before_penalties == (None,) * 3


LOWEST = FailurePolicy.from_mapping({"unparsable_candidate": "lowest", "too_long": "lowest"})


def test_lowest_is_the_smallest_score_of_the_group_less_its_own_length():
    statuses = (Status.SCORED, Status.UNPARSABLE_CANDIDATE, Status.SCORED, Status.TOO_LONG, Status.JUDGE_UNPARSABLE)
    verdict = Verdict(statuses, (8.0, None, 3.0, None, None))
    group = group_of(["a", None, "b", "c", "d"], [5, 5, 50, 60, 5])
    shaped = shape_rewards(group, verdict, RECIPE, LOWEST)
    assert shaped.rewards == pytest.approx((0.08, 0.03, 0.01, -0.01, None))
    assert shaped.before_penalties == (0.08, 0.03, 0.03, 0.03, None)  # exactly: a tie is a tie
    assert (shaped.judged[1], shaped.judged[3]) == (None, None), "a filled reward is no score"


def test_lowest_beside_a_single_score_carries_no_signal():
    verdict = Verdict((Status.UNPARSABLE_CANDIDATE, Status.SCORED), (None, 2.0))
    shaped = shape_rewards(group_of([None, "a"]), verdict, RECIPE, LOWEST)
    assert shaped.rewards == (0.02, 0.02)
    assert classify_group(shaped) is GroupSignal.EQUAL_SCORES


@pytest.mark.parametrize("pays", [False, True])
def test_lowest_of_no_scores_is_masked_never_invented(pays):
    statuses = (Status.UNPARSABLE_CANDIDATE, Status.TOO_LONG, Status.REPETITION)
    config = replace(RECIPE, unscored_pay_length=pays)
    shaped = shape_rewards(group_of([None, "a", "b"]), Verdict(statuses, (None,) * 3), config, LOWEST)
    assert shaped.rewards == (None, None, RECIPE.default_reward)
    dropping = FailurePolicy({**LOWEST.actions, Status.REPETITION: FailureAction.DROP_GROUP})
    assert shape_rewards(group_of([None, "a", "b"]), Verdict(statuses, (None,) * 3), config, dropping).dropped


def test_unparsable_judge_never_becomes_a_reward():
    verdict = Verdict.unscored(2, Status.JUDGE_UNPARSABLE)
    shaped = shape_rewards(group_of(["a", "b"]), verdict, RECIPE, FailurePolicy())
    assert shaped.rewards == (None, None)
    assert not shaped.dropped


def test_drop_group_takes_the_scored_rows_along():
    verdict = Verdict((Status.SCORED, Status.JUDGE_TIMEOUT), (8.0, None))
    policy = FailurePolicy.from_mapping({"judge_timeout": "drop_group"})
    shaped = shape_rewards(group_of(["a", "b"]), verdict, RECIPE, policy)
    assert shaped.dropped
    assert shaped.rewards == (None, None)


def test_abort_names_group_candidate_and_status():
    verdict = Verdict((Status.SCORED, Status.JUDGE_UNREACHABLE), (8.0, None))
    policy = FailurePolicy.from_mapping({"judge_unreachable": "abort"})
    with pytest.raises(RewardFailure, match=r"'c1' of group 'g'.*judge_unreachable"):
        shape_rewards(group_of(["a", "b"]), verdict, RECIPE, policy)


def test_verdict_of_another_group_is_refused():
    with pytest.raises(ValueError, match="group 'g' has 3 candidates, its verdict 2"):
        shape_rewards(group_of(["a", "b", "c"]), scored(1.0, 2.0), RECIPE, FailurePolicy())


@st.composite
def judged_groups(draw):
    """A group, a consistent verdict (duplicates carry the first copy's score) and a failure policy."""
    texts = draw(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=8))
    lengths = draw(st.lists(st.integers(0, 80), min_size=len(texts), max_size=len(texts)))
    outcomes = {
        text: draw(st.one_of(st.floats(0, 10), st.sampled_from(list(DEFAULT_ACTIONS))))
        for text in sorted({text for text in texts if text is not None})
    }
    statuses, scores, seen = [], [], set()
    for text in texts:
        outcome = Status.UNPARSABLE_CANDIDATE if text is None else outcomes[text]
        if isinstance(outcome, Status):
            statuses.append(outcome)
            scores.append(None)
        else:
            statuses.append(Status.DUPLICATE if text in seen else Status.SCORED)
            scores.append(outcome)
        seen.add(text)
    actions = [FailureAction.PENALTY, FailureAction.MASK, FailureAction.DROP_GROUP]
    policy = FailurePolicy({status: draw(st.sampled_from(actions)) for status in DEFAULT_ACTIONS})
    return group_of(texts, lengths), Verdict(tuple(statuses), tuple(scores)), policy


@given(judged_groups())
def test_a_row_has_a_reward_exactly_when_it_was_scored_or_is_to_be_punished(case):
    group, verdict, policy = case
    shaped = shape_rewards(group, verdict, RECIPE, policy)
    for status, reward in zip(verdict.statuses, shaped.rewards, strict=True):
        punished = not status.is_scored and policy.action(status) is FailureAction.PENALTY
        assert (reward is not None) == (not shaped.dropped and (status.is_scored or punished))
        if reward is not None:
            assert math.isfinite(reward)
            assert not punished or reward == RECIPE.default_reward


@given(judged_groups())
def test_duplicates_differ_only_by_their_own_penalty(case):
    group, verdict, policy = case
    shaped = shape_rewards(group, verdict, RECIPE, policy)
    first = {}
    for candidate, judged, before in zip(group.candidates, shaped.judged, shaped.before_penalties, strict=True):
        assert first.setdefault(candidate.translation, (judged, before)) == (judged, before)


@given(judged_groups(), st.randoms(use_true_random=False))
def test_permuting_the_candidates_permutes_the_rewards(case, random):
    group, verdict, policy = case
    order = list(range(len(group.candidates)))
    random.shuffle(order)
    permuted = shape_rewards(
        Group("g", TASK, tuple(group.candidates[i] for i in order)),
        Verdict(tuple(verdict.statuses[i] for i in order), tuple(verdict.scores[i] for i in order)),
        RECIPE,
        policy,
    )
    shaped = shape_rewards(group, verdict, RECIPE, policy)
    assert permuted.rewards == tuple(shaped.rewards[i] for i in order)
    assert permuted.dropped == shaped.dropped


RAMP = OverlongConfig(max_resp_len=60, buffer_len=20, penalty_factor=0.04)


@pytest.mark.parametrize(("n_tokens", "expected"), [(0, 0.0), (40, 0.0), (45, 0.01), (60, 0.04), (1000, 0.04)])
def test_ramp_is_linear_between_threshold_and_limit_and_capped_beyond(n_tokens, expected):
    assert overlong_penalty(n_tokens, RAMP) == pytest.approx(expected)


def test_without_a_configuration_there_is_no_penalty():
    assert overlong_penalty(10_000, None) == 0.0


@given(st.integers(0, 200), st.integers(0, 200))
def test_penalty_never_falls_with_length_and_stays_in_range(shorter, longer):
    shorter, longer = sorted((shorter, longer))
    assert 0.0 <= overlong_penalty(shorter, RAMP) <= overlong_penalty(longer, RAMP) <= 0.04


@given(st.integers(0, 200))
def test_without_the_cap_the_ramp_rises_on_as_in_dapo(n_tokens):
    uncapped = replace(RAMP, capped=False)
    assert overlong_penalty(n_tokens, uncapped) == pytest.approx(0.04 * max(n_tokens - 40, 0) / 20)
    assert overlong_penalty(n_tokens, uncapped) >= overlong_penalty(n_tokens, RAMP)
