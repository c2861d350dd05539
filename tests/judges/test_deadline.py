"""Time limits on a judge's model: what is late is marked, what is in time counts, nothing is made up."""

from __future__ import annotations

import math
import threading

import pytest
from support.judged_groups import group_of, judge_over
from support.text_models import TIMEOUT, UNREACHABLE, TextModel, by_source

from grrm.gqm.groups import Status
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.gqm import GQMOptions
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.sqm import SQMOptions


class Gate(TextModel):
    """A model that replies once it is let; keeps the threads it ran in."""

    def __init__(self):
        super().__init__(str.upper)
        self.started, self.opened = threading.Event(), threading.Event()
        self.threads = []

    def generate_text(self, prompts, **sampling):
        self.threads.append(threading.current_thread())
        self.started.set()
        assert self.opened.wait(120)
        return super().generate_text(prompts, **sampling)


def draw(generator, *prompts):
    return generator.generate_text(prompts, temperature=0.0, max_new_tokens=5)


def test_a_timed_model_is_asked_as_it_would_be_without_a_limit():
    model = TextModel(lambda prompt: "yes")
    sampling = {"temperature": 0.7, "top_p": 0.9, "max_new_tokens": 5, "seeds": [3]}
    assert TimedGenerator(model, lambda: math.inf).generate_text(["?"], **sampling)[0].text == "yes"
    assert model.calls == [{"prompts": ["?"], **sampling}]


def test_a_deadline_holds_inside_and_nothing_does_outside():
    deadline = Deadline()
    assert deadline.remaining_s() == math.inf
    with deadline.within(60.0):
        assert 0.0 < deadline.remaining_s() <= 60.0
    with deadline.within(0.0):
        assert deadline.remaining_s() == 0.0
    assert deadline.remaining_s() == math.inf
    with pytest.raises(ZeroDivisionError), deadline.within(60.0):
        raise ZeroDivisionError
    assert deadline.remaining_s() == math.inf


def test_replies_in_time_are_the_models_own_from_one_thread():
    model = Gate()
    model.opened.set()
    timed = TimedGenerator(model, lambda: 120.0)
    assert [reply.text for reply in draw(timed, "a", "b")] == ["A", "B"]
    assert draw(timed, "c")[0].finish_reason == "stop"
    assert len(set(model.threads)) == 1
    assert model.threads[0] is not threading.current_thread()
    assert timed.count_tokens("four") == 4


def test_late_replies_are_marked_and_idleness_is_told_when_it_comes():
    model, idle = Gate(), threading.Event()
    seconds = [1.0, 0.0, 120.0]
    timed = TimedGenerator(model, lambda: seconds.pop(0))
    assert [(r.text, r.finish_reason) for r in draw(timed, "a", "b")] == [("", "timeout")] * 2
    assert draw(timed, "never begun")[0].finish_reason == "timeout"
    timed.when_idle(idle.set)
    assert not idle.is_set()
    model.opened.set()
    assert idle.wait(120)
    assert draw(timed, "c")[0].text == "C"
    assert len(model.threads) == 2, "what had not begun at its deadline is not begun later"


def test_a_model_that_is_idle_says_so_at_once():
    model, calls = Gate(), []
    model.opened.set()
    timed = TimedGenerator(model, lambda: 120.0)
    timed.when_idle(lambda: calls.append("new"))
    draw(timed, "a")
    timed.when_idle(lambda: calls.append("done"))
    assert calls == ["new", "done"]


def test_an_error_of_the_model_is_the_callers_and_the_next_call_works():
    class Fails(Gate):
        def generate_text(self, prompts, **sampling):
            if "bad" in prompts:
                raise FloatingPointError("not finite")
            return super().generate_text(prompts, **sampling)

    model = Fails()
    model.opened.set()
    timed = TimedGenerator(model, lambda: 120.0)
    with pytest.raises(FloatingPointError, match="not finite"):
        draw(timed, "bad")
    assert draw(timed, "good")[0].text == "GOOD"


def test_a_judge_past_its_deadline_says_so_instead_of_waiting():
    model = Gate()
    deadline = Deadline()
    judge = judge_over(TimedGenerator(model, deadline.remaining_s), GQMOptions())
    with deadline.within(0.05):
        (verdict,) = judge.judge([group_of(["a", "bb", "a", None])])
    model.opened.set()
    expected = (Status.JUDGE_TIMEOUT,) * 3 + (Status.UNPARSABLE_CANDIDATE,)
    assert (verdict.statuses, verdict.scores, verdict.attempts) == (expected, (None,) * 4, 0)


@pytest.mark.parametrize(("mark", "status"), [(TIMEOUT, Status.JUDGE_TIMEOUT), (UNREACHABLE, Status.JUDGE_UNREACHABLE)])
def test_marked_groups_have_the_status_and_the_others_their_scores(mark, status):
    model, metrics = by_source({"LATE": [mark], "FINE": ["A: 7, B: 2"]}), JudgeMetrics()
    judge = judge_over(model, GQMOptions(), metrics=metrics)
    late, fine = judge.judge([group_of(["a", "bb"], "g", "LATE"), group_of(["a", "bb"], "h", "FINE")])
    assert (late.statuses, late.scores) == ((status,) * 2, (None, None))
    assert fine.scores == (7.0, 2.0)
    assert len(model.prompts) == 2, "a failure of the model is not a reply to ask for again"
    counted = metrics.values()
    assert (counted["questions"], counted["retries"], counted["unanswered"]) == (2, 0, 1)


def test_time_that_ends_during_retries_is_a_timeout_with_the_last_unreadable_reply():
    metrics = JudgeMetrics()
    judge = judge_over(by_source({"SRC": ["Hm.", "Well.", TIMEOUT]}), GQMOptions(retries=6), metrics=metrics)
    (verdict,) = judge.judge([group_of(["a", "bb"])])
    assert set(verdict.statuses) == {Status.JUDGE_TIMEOUT}
    assert (verdict.analysis, verdict.attempts) == ("Well.", 2)
    assert (metrics.values()["retries"], metrics.values()["unanswered"]) == (2, 1)


def test_single_judge_marks_candidates_one_by_one():
    model, metrics = TextModel(lambda prompt: TIMEOUT if "\nbb\n" in prompt else "7"), JudgeMetrics()
    (verdict,) = judge_over(model, SQMOptions(), metrics=metrics).judge([group_of(["a", "bb", "bb"])])
    assert verdict.scores == (7.0, None, None)
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_TIMEOUT, Status.JUDGE_TIMEOUT)
    assert (metrics.values()["questions"], metrics.values()["unanswered"]) == (2, 1)


def test_what_timed_out_is_not_remembered():
    model = by_source({"SRC": [TIMEOUT, "A: 7, B: 2"]})
    judge = judge_over(model, GQMOptions(cache_size=4))
    assert set(judge.judge([group_of(["a", "bb"])])[0].statuses) == {Status.JUDGE_TIMEOUT}
    assert judge.judge([group_of(["a", "bb"])])[0].scores == (7.0, 2.0)


def test_an_order_that_timed_out_is_left_out_of_the_mean():
    judge = judge_over(by_source({"SRC": ["A: 7, B: 2", TIMEOUT]}), GQMOptions(permutations=2))
    assert judge.judge([group_of(["a", "bb"])])[0].scores == (7.0, 2.0)
