from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm.groups import (
    Candidate,
    Group,
    Status,
    TranslationTask,
    Verdict,
    ranking_line,
    ranking_to_scores,
    tiers_of,
)
from grrm.gqm.languages import CANDIDATE_IDS

TASK = TranslationTask("Hello", "en", "de")


def test_a_group_refuses_a_repeated_candidate_id():
    with pytest.raises(ValueError, match="'g1' repeats a candidate id"):
        Group("g1", TASK, (Candidate("a", "x", "x"), Candidate("a", "y", "y")))


def test_only_scored_and_duplicate_carry_a_score():
    assert [status for status in Status if status.is_scored] == [Status.SCORED, Status.DUPLICATE]


@pytest.mark.parametrize("status", list(Status))
def test_a_status_and_its_score_cannot_disagree(status):
    wrong = None if status.is_scored else 0.0
    with pytest.raises(ValueError, match="cannot carry score"):
        Verdict((status,), (wrong,))


@pytest.mark.parametrize("score", [-0.1, 10.1, float("nan"), float("inf")])
def test_scores_outside_the_scale_are_refused(score):
    with pytest.raises(ValueError, match="outside 0 to 10"):
        Verdict((Status.SCORED,), (score,))


def test_a_verdict_is_aligned():
    with pytest.raises(ValueError, match="2 statuses for 1 scores"):
        Verdict((Status.SCORED, Status.SCORED), (1.0,))


def test_an_unscored_verdict_has_no_zero_in_it():
    verdict = Verdict.unscored(3, Status.JUDGE_TIMEOUT)
    assert verdict.scores == (None, None, None)
    assert set(verdict.statuses) == {Status.JUDGE_TIMEOUT}
    assert verdict.ranking is None


def test_ties_share_a_tier_and_stay_in_order():
    assert tiers_of([7, 9, 2, 7]) == ((1,), (0, 3), (2,))
    assert ranking_line({"D": 7, "B": 9, "C": 2, "A": 7}) == "B > A = D > C"


def test_nothing_ranked_has_no_tiers():
    assert tiers_of([]) == ()
    assert ranking_line({}) == ""


@given(st.lists(st.integers(0, 10), min_size=1, max_size=26))
def test_ranking_line_keeps_the_order_of_the_scores(scores):
    ordinal = ranking_to_scores(ranking_line(dict(zip(CANDIDATE_IDS, scores, strict=False))))
    heights = [ordinal[candidate_id] for candidate_id in CANDIDATE_IDS[: len(scores)]]
    assert tiers_of(heights) == tiers_of(scores)
    assert min(heights) == 0
