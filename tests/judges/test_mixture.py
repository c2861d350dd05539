"""Several judges as one: asked side by side, with deadlines, fallbacks, and failures that stay their own."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.judged_groups import group_of

from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm.judges.deadline import Deadline
from grrm.judges.mixture import MixtureJudge, Part
from grrm.rewards.client import RewardServerError

GROUPS = [group_of(["a", "bb"], "g"), group_of(["ccc"], "h")]


def judge_of(judge_groups):
    return SimpleNamespace(name="j", judge=judge_groups)


def giving(points):
    """A judge that gives every candidate these points; a Status in their place is a failure of the judge."""

    def judge_groups(groups):
        if isinstance(points, Status):
            return [Verdict.unscored(len(group.candidates), points) for group in groups]
        return [Verdict((Status.SCORED,) * len(g.candidates), (points,) * len(g.candidates)) for g in groups]

    return judge_of(judge_groups)


def hung():
    """A judge that answers only when `let` is set."""
    let = threading.Event()

    def judge_groups(groups):
        assert let.wait(120)
        return giving(9.0).judge(groups)

    return SimpleNamespace(name="hung", judge=judge_groups, let=let)


def test_parts_are_weighted_and_kept():
    verdicts = MixtureJudge([Part(giving(2.0), "low"), Part(giving(8.0), "high", weight=2.0)]).judge(GROUPS)
    assert [verdict.scores for verdict in verdicts] == [(6.0, 6.0), (6.0,)]
    assert [(part.name, part.scores) for part in verdicts[0].parts] == [("low", (2.0, 2.0)), ("high", (8.0, 8.0))]


@pytest.mark.parametrize("fallback", [None, Part(giving(9.0), "c")])
def test_a_group_is_timed_out_as_a_whole_where_the_callers_deadline_cuts_a_part(fallback):
    stuck, deadline = hung(), Deadline()
    parts = [Part(giving(2.0), "a"), Part(stuck, "b", deadline_s=120.0, fallback=fallback)]
    mixture = MixtureJudge(parts, remaining_s=deadline.remaining_s)
    with deadline.within(0.05):
        late = mixture.judge(GROUPS)
    assert late == [Verdict.unscored(len(group.candidates), Status.JUDGE_TIMEOUT) for group in GROUPS]
    stuck.let.set()
    assert mixture.judge(GROUPS)[0].scores == (5.5, 5.5)


def test_a_hung_part_is_left_out_at_its_deadline_and_the_run_goes_on():
    stuck = hung()
    mixture = MixtureJudge([Part(giving(2.0), "a"), Part(stuck, "b", deadline_s=0.05)])
    for _ in range(2):  # a call that hangs does not spoil the next one
        (verdict, _) = mixture.judge(GROUPS)
        assert verdict.scores == (2.0, 2.0)
        assert verdict.parts[1].statuses == (Status.JUDGE_TIMEOUT,) * 2
        assert not verdict.parts[1].counts
    stuck.let.set()


def test_a_hung_part_that_is_required_leaves_no_score():
    stuck = hung()
    mixture = MixtureJudge([Part(giving(2.0), "a"), Part(stuck, "b", deadline_s=0.05, required=True)])
    assert mixture.judge(GROUPS)[0].statuses == (Status.JUDGE_TIMEOUT,) * 2
    stuck.let.set()


def test_parts_with_deadlines_are_asked_at_the_same_time():
    both = threading.Barrier(2, timeout=120)

    def meets(groups):
        both.wait()
        return giving(4.0).judge(groups)

    mixture = MixtureJudge([Part(judge_of(meets), name, deadline_s=120.0) for name in "ab"])
    assert mixture.judge(GROUPS)[0].scores == (4.0, 4.0)


def test_a_fallback_is_asked_about_the_groups_that_failed():
    seen = []

    def half(groups):
        first, *rest = giving(3.0).judge(groups)
        return [first, *(Verdict.unscored(len(verdict.scores), Status.JUDGE_UNPARSABLE) for verdict in rest)]

    def remember(groups):
        seen.extend(group.group_id for group in groups)
        return giving(6.0).judge(groups)

    part = Part(judge_of(half), "a", fallback=Part(judge_of(remember), "b"))
    first, second = MixtureJudge([part]).judge(GROUPS)
    assert seen == ["h"]
    assert (first.scores, second.scores) == ((3.0, 3.0), (6.0,))
    assert [verdict.parts[0].fell_back for verdict in (first, second)] == [False, True]


def test_a_fallback_that_fails_too_leaves_the_part_out():
    part = Part(giving(Status.TOO_LONG), "a", fallback=Part(giving(Status.JUDGE_UNREACHABLE), "b"))
    verdict = MixtureJudge([part, Part(giving(1.0), "c")]).judge(GROUPS)[0]
    assert verdict.scores == (1.0, 1.0)
    assert verdict.parts[0].statuses == (Status.JUDGE_UNREACHABLE,) * 2


def test_a_fallback_of_a_fallback_is_asked_where_both_before_it_failed():
    last = Part(giving(7.0), "c")
    second = Part(giving(Status.JUDGE_TIMEOUT), "b", fallback=last)
    part = Part(giving(Status.JUDGE_UNREACHABLE), "a", required=True, fallback=second)
    verdict = MixtureJudge([part]).judge(GROUPS)[0]
    assert verdict.scores == (7.0, 7.0)
    assert verdict.parts[0].fell_back


def test_a_fallback_that_is_away_takes_no_score_that_the_judge_gave():
    def all_but_the_last(groups):
        n_others = [len(group.candidates) - 1 for group in groups]
        return [Verdict((Status.SCORED,) * n + (Status.JUDGE_UNPARSABLE,), (3.0,) * n + (None,)) for n in n_others]

    def verdict_with(fallback):
        part = Part(judge_of(all_but_the_last), "a", required=True, fallback=Part(fallback, "b"))
        return MixtureJudge([part]).judge(GROUPS[:1])[0]

    verdict = verdict_with(giving(Status.JUDGE_UNREACHABLE))
    assert (verdict.scores, verdict.statuses[1]) == ((3.0, None), Status.JUDGE_UNPARSABLE)
    assert verdict.parts[0].fell_back is False
    assert verdict_with(giving(6.0)).scores == (6.0, 6.0)


def test_a_reward_server_that_is_away_is_a_status_and_its_cause_is_logged(caplog):
    def away(groups):
        raise RewardServerError("http://127.0.0.1:9", ["g"], 3, "refused")

    verdict = MixtureJudge([Part(judge_of(away), "a"), Part(giving(1.0), "b")]).judge(GROUPS)[0]
    assert verdict.parts[0].statuses == (Status.JUDGE_UNREACHABLE,) * 2
    assert verdict.scores == (1.0, 1.0)
    assert "judge a gave no verdict: reward server http://127.0.0.1:9 gave no reward" in caplog.text
    assert ": refused; check that it runs" in caplog.text


@pytest.mark.parametrize("deadline_s", [None, 120.0])
def test_a_refused_token_ends_the_call_though_there_is_a_fallback(deadline_s):
    def refuse(groups):
        raise RewardServerError("http://127.0.0.1:9", ["g"], 1, "it answered HTTP 401", is_refused=True, status=401)

    refused = Part(judge_of(refuse), "a", deadline_s=deadline_s, fallback=Part(giving(9.0), "c"))
    with pytest.raises(UserError, match="HTTP 401; correct its address, the token or the request"):
        MixtureJudge([refused, Part(giving(1.0), "b")]).judge(GROUPS)


@pytest.mark.parametrize("deadline_s", [None, 120.0])
def test_a_mistake_of_the_settings_is_no_failure_to_answer(deadline_s):
    def wrong(groups):
        raise UserError("no such model")

    with pytest.raises(UserError, match="no such model"):
        MixtureJudge([Part(judge_of(wrong), "a", deadline_s=deadline_s)]).judge(GROUPS)


def test_trouble_is_told_when_it_begins_and_when_it_ends(caplog):
    answers = [Status.JUDGE_TIMEOUT, Status.JUDGE_TIMEOUT, 3.0]
    mixture = MixtureJudge([Part(judge_of(lambda groups: giving(answers.pop(0)).judge(groups)), "comet")])
    for _ in range(3):
        mixture.judge(GROUPS)
    told = [record.message for record in caplog.records]
    assert told == ["judge comet failed on 2 of 2 groups (judge_timeout)", "judge comet answers again"]
