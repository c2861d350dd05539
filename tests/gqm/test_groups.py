import pytest

from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict

TASK = TranslationTask("Hello", "en", "de")


def test_a_group_refuses_a_repeated_candidate_id():
    with pytest.raises(ValueError, match="'g1' repeats a candidate id"):
        Group("g1", TASK, (Candidate("a", "x", "x"), Candidate("a", "y", "y")))


def test_a_group_keeps_its_candidates_in_order():
    group = Group("g1", TASK, tuple(Candidate(name, name, None) for name in "cab"))
    assert [candidate.candidate_id for candidate in group.candidates] == ["c", "a", "b"]


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
    verdict = Verdict.unscored(3, Status.JUDGE_TIMEOUT, attempts=2, analysis="…")
    assert verdict.scores == (None, None, None)
    assert set(verdict.statuses) == {Status.JUDGE_TIMEOUT}
    assert (verdict.attempts, verdict.ranking, verdict.analysis) == (2, None, "…")


def test_statuses_travel_as_their_names():
    assert [Status(status.value) for status in Status] == list(Status)
