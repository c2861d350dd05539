"""Verdicts of several judges on one group as one: normalisation, weights, and parts that failed."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm.groups import PartVerdict, Status
from grrm.rewards.mixing import Normalisation, counted, mix, normalised

NORMALISATIONS = get_args(Normalisation)
SCORES = st.lists(st.one_of(st.none(), st.floats(0, 10)), min_size=1, max_size=12)


def part(scores, name="a", weight=1.0, normalise="none", status=Status.JUDGE_TIMEOUT, required=False, **statuses):
    """What a judge said: None is a candidate that it left with `status`, or with the one under its place."""
    said = tuple(
        Status.SCORED if score is not None else statuses.get(f"at{i}", status) for i, score in enumerate(scores)
    )
    return counted(PartVerdict(name, weight, normalise, said, tuple(scores)), required=required)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", [2.0, None, 4.0, 9.0]),
        ("mean", [2.0, None, 4.0, 9.0]),
        ("std", [5 - 3 / math.sqrt(26 / 3), None, 5 - 1 / math.sqrt(26 / 3), 5 + 4 / math.sqrt(26 / 3)]),
        ("rank", [0.0, None, 5.0, 10.0]),
    ],
)
def test_scores_are_normalised_over_those_there_are(how, expected):
    assert normalised([2.0, None, 4.0, 9.0], how) == pytest.approx(expected)


def test_equal_scores_share_their_rank():
    assert normalised([1.0, 3.0, 3.0, 8.0, 3.0], "rank") == [0.0, 5.0, 5.0, 10.0, 5.0]


@pytest.mark.parametrize("how", ["mean", "std", "rank"])
@pytest.mark.parametrize("scores", [[7.0], [7.0, 7.0, None], [None, None]])
def test_nothing_to_compare_is_the_middle(how, scores):
    assert normalised(scores, how) == [None if score is None else 5.0 for score in scores]


@given(SCORES, st.sampled_from(NORMALISATIONS))
def test_normalised_scores_stay_scores_and_in_order(scores, how):
    found = normalised(scores, how)
    pairs = [(score, new) for score, new in zip(scores, found, strict=True) if score is not None]
    assert [new is None for new in found] == [score is None for score in scores]
    assert all(0 <= new <= 10 for _, new in pairs)
    assert all(a[1] <= b[1] for a in pairs for b in pairs if a[0] <= b[0])


def test_mixture_is_the_weighted_mean():
    verdict = mix([part([2.0, 8.0], weight=3.0), part([6.0, 0.0], "b")])
    assert verdict.scores == (3.0, 6.0)
    assert verdict.statuses == (Status.SCORED,) * 2
    assert [one.scores for one in verdict.parts] == [(2.0, 8.0), (6.0, 0.0)]


def test_a_part_that_failed_on_one_candidate_leaves_the_whole_group_to_the_others():
    verdict = mix([part([2.0, 8.0]), part([6.0, None], "b")])
    assert verdict.scores == (2.0, 8.0)
    assert [one.counts for one in verdict.parts] == [True, False]


def test_a_required_part_leaves_what_it_did_not_score_without_a_score():
    verdict = mix([part([2.0, 8.0]), part([6.0, None], "b", required=True)])
    assert verdict.scores == (4.0, None)
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_TIMEOUT)


def test_where_no_part_counts_no_candidate_has_a_score():
    verdict = mix([part([5.0, None], status=Status.TOO_LONG), part([None, None], "b")])
    assert verdict.statuses == (Status.TOO_LONG,) * 2
    assert verdict.scores == (None, None)


def test_a_candidates_own_fault_stays_its_status_whoever_found_it():
    found = part([6.0, None], "b", status=Status.UNSAFE_CANDIDATE)
    verdict = mix([part([2.0, 8.0]), found])
    assert verdict.scores == (4.0, None)
    assert verdict.statuses == (Status.SCORED, Status.UNSAFE_CANDIDATE)
    failed = part([None, None], at1=Status.UNPARSABLE_CANDIDATE)
    assert mix([failed]).statuses == (Status.JUDGE_TIMEOUT, Status.UNPARSABLE_CANDIDATE)


@pytest.mark.parametrize("required", [False, True])
def test_a_part_with_nothing_to_compare_does_not_count(required):
    single = part([None, None], "b", status=Status.SINGLE_CANDIDATE, required=required)
    assert mix([part([3.0, 3.0]), single]).scores == (3.0, 3.0)
    assert mix([single]).statuses == (Status.SINGLE_CANDIDATE,) * 2


def test_copies_are_told_where_every_part_says_so():
    copies = PartVerdict("a", 1.0, "none", (Status.SCORED, Status.DUPLICATE), (4.0, 4.0))
    singly = PartVerdict("b", 1.0, "none", (Status.SCORED, Status.SCORED), (4.0, 4.0))
    assert mix([copies, copies]).statuses == (Status.SCORED, Status.DUPLICATE)
    assert mix([copies, singly]).statuses == (Status.SCORED, Status.SCORED)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.sampled_from(NORMALISATIONS)), min_size=1, max_size=4), st.data())
def test_any_mixture_is_a_verdict(settings, data):
    n_candidates = data.draw(st.integers(1, 5))
    statuses = st.sampled_from([status for status in Status if status is not Status.DUPLICATE])
    parts = []
    for weight, how in settings:
        said = tuple(data.draw(st.lists(statuses, min_size=n_candidates, max_size=n_candidates)))
        scores = tuple(data.draw(st.floats(0, 10)) if status.is_scored else None for status in said)
        one = PartVerdict("p", weight, how, said, scores)
        parts.append(counted(one, required=data.draw(st.booleans())))
    verdict = mix(parts)  # which checks that each score has its status and is from 0 to 10
    assert len(verdict.scores) == n_candidates


def test_replies_and_why_some_could_not_be_read_add_up_over_the_judges():
    scored = (Status.SCORED, Status.SCORED)
    first = PartVerdict("a", 1.0, "none", scored, (4.0, 6.0), attempts=3, rejections=("truncated", "missing_id"))
    second = PartVerdict("b", 1.0, "none", scored, (4.0, 6.0), attempts=1)
    verdict = mix([first, second])
    assert (verdict.attempts, verdict.rejections) == (4, ("truncated", "missing_id"))
