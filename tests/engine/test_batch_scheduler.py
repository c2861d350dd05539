"""Who enters a batch that several callers share, what each of them is told, and what becomes of those who leave."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stepped_engine import SteppedEngine
from support.stopped_clock import eventually

from grrm.engine.api import Progress, Request, SamplingParams
from grrm.engine.scheduler import BatchScheduler, ShortSteps, is_small
from grrm.engine.shared import SharedEngine
from grrm.engine.submission import Ended, NewTokens
from grrm.errors import UserError
from grrm.judges.deadline import Abandoned, Deadline


def requests(prompts, n_tokens=3, temperature=1.0):
    params = SamplingParams(max_new_tokens=n_tokens, temperature=temperature)
    return [Request(prompt, params, stream) for stream, prompt in enumerate(prompts)]


def new_tokens(token_ids):
    return NewTokens(0, Progress(token_ids, [-1.0] * len(token_ids), [], None))


def tokens_of(submission):
    """Token ids by request, once all have ended."""
    ended = {}
    while submission.open:
        event = submission.next(120)
        assert event is not None
        if isinstance(event, Ended):
            ended[event.index] = event.completion.token_ids
    return ended


def occupied(n_slots, **options):
    """An engine that stands still at its first step with one request, which has no end, and its scheduler."""
    engine = SteppedEngine(n_slots, stands_still=True)
    scheduler = BatchScheduler(engine, **options)
    first = scheduler.submit(requests([[900]], n_tokens=10**6))
    eventually(lambda: engine.entered)
    return engine, scheduler, first


def test_a_request_that_arrives_joins_the_batch_that_runs():
    engine, scheduler, first = occupied(100)
    second = scheduler.submit(requests([[5], [7]]))
    engine.go(5)
    assert tokens_of(second) == {0: [6, 7, 8], 1: [8, 9, 10]}
    assert (len(first.open), scheduler.n_running, engine.n_sessions) == (1, 1, 1)


def test_a_small_submission_does_not_wait_for_the_rest_of_a_large_one():
    engine, scheduler, _ = occupied(5)
    scheduler.submit(requests([[1, n] for n in range(40)], n_tokens=2))
    scheduler.submit(requests([[2, n] for n in range(2)], n_tokens=2))
    engine.go(5)
    eventually(lambda: len(engine.entered) > 2)
    assert [[prompt[0] for prompt in entered] for entered in engine.entered[1:3]] == [[2, 2], [1, 1]]


def test_equal_prompts_enter_together_and_neighbours_have_the_longest_prefixes_in_common():
    engine, scheduler, _ = occupied(100, max_batched_tokens=13)
    prompts = [[1, 1, 1], [2, 2, 2], [1, 1, 2], [1, 1, 1], [2, 2, 3], [3, 3, 3]]
    submission = scheduler.submit(requests(prompts))
    engine.go(20)
    assert tokens_of(submission)[1] == [3, 4, 5]
    assert engine.entered[1:] == [
        [(1, 1, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2), (2, 2, 3)],
        [(3, 3, 3)],
    ]


def test_a_step_has_no_more_tokens_than_its_budget_but_a_prompt_longer_than_that_enters_by_itself():
    engine = SteppedEngine(100)
    scheduler = BatchScheduler(engine, max_batched_tokens=10)
    submission = scheduler.submit(requests([[1] * 6, [2] * 6, [3] * 30, [4] * 3]))
    assert len(tokens_of(submission)) == 4
    assert [sum(map(len, step)) for step in engine.entered] == [6, 6, 30, 3]


def test_a_request_equal_to_one_under_way_shares_its_completion():
    engine, scheduler, _ = occupied(2)
    running, twin = (scheduler.submit(requests([[5]])) for _ in range(2))
    other_stream = scheduler.submit([Request([5], SamplingParams(max_new_tokens=3), 9)])
    greedy = [
        scheduler.submit([Request([5], SamplingParams(max_new_tokens=3, temperature=0, seed=seed), seed)])
        for seed in range(3)
    ]
    engine.go(40)
    for submission in (running, twin, other_stream, *greedy):
        assert tokens_of(submission) == {0: [6, 7, 8]}
    assert sum(map(len, engine.entered)) == 1 + 3


def test_one_of_two_who_share_a_completion_may_leave():
    engine, scheduler, _ = occupied(1)
    asked, twin = (scheduler.submit(requests([[5], [6]])) for _ in range(2))  # both wait
    asked.cancel()
    twin.cancel(1)
    assert scheduler.n_waiting == 1
    engine.n_slots = 2
    engine.go(10)
    assert tokens_of(twin) == {0: [6, 7, 8]}
    assert asked.next(0.01) is None


def test_what_is_cancelled_leaves_the_batch():
    engine, scheduler, first = occupied(2)
    second = scheduler.submit(requests([[5]]))
    second.cancel()
    first.cancel()
    engine.go(5)
    eventually(lambda: engine.n_cancelled == 1)  # the other had not begun
    assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
    assert tokens_of(scheduler.submit(requests([[7]]))) == {0: [8, 9, 10]}


def test_tokens_are_told_as_they_are_drawn_to_all_who_ask_for_them():
    engine = SteppedEngine(stands_still=True)
    scheduler = BatchScheduler(engine)
    early = scheduler.submit(requests([[5]], n_tokens=4), streams=True)
    engine.go(1)
    assert early.next(120) == new_tokens([6])
    late = scheduler.submit(requests([[5]], n_tokens=4), streams=True)
    engine.go(1)
    assert early.next(120) == new_tokens([7])
    assert late.next(120) == new_tokens([6, 7])
    engine.go(2)
    assert early.next(120) == new_tokens([8])
    assert early.next(120).completion.token_ids == [6, 7, 8, 9]
    assert early.next(120) is None


def test_small_submissions_take_twice_as_long_for_themselves_as_a_step_of_all():
    steps = ShortSteps()
    assert not steps.is_due  # there has been no step of all
    for _ in range(2):
        steps.record(8.0, is_short=False, reads=False)
        for _ in range(16):
            assert steps.is_due
            steps.record(1.0, is_short=True, reads=False)
        assert not steps.is_due


def test_short_steps_that_are_not_much_quicker_are_not_taken_until_they_are_tried_again():
    steps, n_full = ShortSteps(), 0
    steps.record(8.0, is_short=False, reads=False)
    steps.record(3.0, is_short=True, reads=False)
    while not steps.is_due:
        steps.record(8.0, is_short=False, reads=False)
        n_full += 1
    assert 5 < n_full < 30


def test_a_step_is_recorded_with_the_time_it_took(monkeypatch):
    took = []
    monkeypatch.setattr(ShortSteps, "record", lambda self, took_s, **step: took.append(took_s))
    began_s = time.perf_counter()
    tokens_of(BatchScheduler(SteppedEngine()).submit(requests([[5]])))
    assert all(one >= 0 for one in took)
    assert 0 < sum(took) < time.perf_counter() - began_s


class AlwaysDue:
    is_due = True

    def record(self, took_s, **step):
        pass


def test_short_steps_are_for_small_submissions_and_no_large_one_enters_in_them(monkeypatch):
    monkeypatch.setattr("grrm.engine.scheduler.ShortSteps", AlwaysDue)
    engine = SteppedEngine(100, stands_still=True)
    scheduler = BatchScheduler(engine)
    large = scheduler.submit(requests([[n] for n in range(40)], n_tokens=20))
    eventually(lambda: engine.entered)
    other = scheduler.submit(requests([[5, n] for n in range(30)]))
    small = scheduler.submit(requests([[6, n] for n in range(2)], n_tokens=5))
    engine.go()
    assert [len(tokens_of(one)) for one in (large, other, small)] == [40, 30, 2]
    assert engine.stepped[:6] == [set(range(40))] + [{70, 71}] * 5
    assert [len(entered) for entered in engine.entered] == [40, 2, 30]


@pytest.mark.parametrize(("few", "many"), [(8, 8), (1, 7), (0, 99)])
def test_what_is_not_few_is_not_small(few, many):
    assert not is_small(few, many)
    assert is_small(1, 8)


def test_a_longer_request_waits_until_the_batch_is_empty_and_gets_the_room_it_needs():
    engine = SteppedEngine(stands_still=True)
    scheduler = BatchScheduler(engine)
    short = scheduler.submit(requests([[5]], n_tokens=40))
    eventually(lambda: engine.entered)
    long, after = (scheduler.submit(requests([[n]], n_tokens=n)) for n in (2000, 8))
    engine.go()
    for submission, n_tokens in ((short, 40), (long, 2000), (after, 8)):
        assert len(tokens_of(submission)[0]) == n_tokens
    assert engine.entered == [[(5,)], [(2000,), (8,)]]
    assert engine.n_sessions == 2
    assert engine.n_beside == 0  # the memory of one is free before the next one takes its own


def test_a_failing_engine_fails_what_ran_and_the_rest_goes_on_in_a_new_session():
    engine, scheduler, first = occupied(1)
    waiting = scheduler.submit(requests([[5]]))
    engine.fault = FloatingPointError("not finite")
    engine.go(10)
    with pytest.raises(FloatingPointError):
        first.next(120)
    assert first.next(0.01) is None
    assert tokens_of(waiting) == {0: [6, 7, 8]}
    assert engine.n_sessions == 2


def test_what_the_model_cannot_take_is_refused_at_once_by_its_number():
    scheduler = BatchScheduler(SteppedEngine())
    with pytest.raises(UserError, match="Prompt 1 is empty"):
        scheduler.submit(requests([[1], []]))
    assert tokens_of(scheduler.submit(requests([[1]]))) == {0: [2, 3, 4]}


def test_calls_of_several_threads_are_drawn_in_one_batch():
    engine = SteppedEngine(stands_still=True)
    scheduler = BatchScheduler(engine)
    shared, params = SharedEngine(scheduler), SamplingParams(max_new_tokens=4)
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(shared.generate, [[n], [n, n]], params) for n in range(8)]
        eventually(lambda: scheduler.n_running + scheduler.n_waiting == 16)
        engine.go()
        found = [[one.token_ids for one in call.result(120)] for call in calls]
    assert found == [[[n + 1, n + 2, n + 3, n + 4]] * 2 for n in range(8)]
    assert engine.n_steps < 8 * 4


def test_what_is_late_is_marked_and_given_up_and_what_has_ended_is_kept():
    engine = SteppedEngine(stands_still=True)
    deadline, scheduler = Deadline(), BatchScheduler(engine)
    shared = SharedEngine(scheduler, deadline)
    engine.go(3)
    with deadline.within(120):
        short = shared.generate([[5]], SamplingParams(max_new_tokens=3))
    with deadline.within(0.05):
        long = shared.generate([[5], [6]], SamplingParams(max_new_tokens=30))
    assert [(one.token_ids, one.finish_reason) for one in short] == [([6, 7, 8], "stop")]
    assert [(one.token_ids, one.finish_reason) for one in long] == [([], "timeout")] * 2
    engine.go()
    eventually(lambda: scheduler.n_running == 0)


def test_a_call_that_nobody_waits_for_is_given_up():
    engine = SteppedEngine(stands_still=True)
    deadline = Deadline()
    shared = SharedEngine(BatchScheduler(engine), deadline)
    with pytest.raises(Abandoned), deadline.within(60, lambda: bool(engine.entered)):
        shared.generate([[5]], SamplingParams(max_new_tokens=30))
    engine.go()
    eventually(lambda: engine.n_cancelled == 1)
