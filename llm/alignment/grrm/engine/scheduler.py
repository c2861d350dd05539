"""Continuous batching across callers: requests join the running batch on arrival, and leave it if their caller cancels.

A thread of its own steps the engine. Callers submit requests from theirs and receive tokens and completions as events.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Protocol

from grrm.engine.api import Completion, Request, Session
from grrm.engine.submission import Ended, Key, NewTokens, SharedSequence, Submission

logger = logging.getLogger(__name__)
_LENGTH_MULTIPLE = 1024  # tokens by which the length of a slot grows
SMALL = 8
SHARE = 2.0
CHEAPER = 3
FORGETTING = 0.99  # decay per step of a measured duration: short steps are tried again after some hundreds


class SessionEngine(Protocol):
    """An engine whose batches may be joined while they run."""

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that leaves room for one token."""

    @property
    def step_tokens(self) -> int:
        """Prompt tokens of a step at most, by default."""

    def open_session(self, max_len: int | None = None) -> Session:
        """A batch for prompts and completions of up to `max_len` tokens together, at most the model's positions."""

    def check(self, requests: Sequence[Request]) -> None:
        """Raises UserError for prompts or stop tokens that the model cannot take."""


class BatchScheduler:
    """Runs the requests of all callers in one batch of `engine`.

    Before each step waiting requests enter free slots, those of the caller with the fewest running ones first, so that
    a small submission does not wait for a large one. Equal prompts enter together, and within a submission each follows
    the one with the longest common prefix, because the engine computes such a prefix once.

    Prompt tokens that enter and tokens decoded in a step number at most `max_batched_tokens`, by default the engine's
    `step_tokens`, which bounds the pause of running requests; a longer prompt enters by itself. Small submissions enter
    before large ones, and may take steps of their own (see `ShortSteps`).

    Requests that are equal, random stream included, share a completion. The length of a slot grows with the requests,
    up to the model's positions; for that the batch has to run empty.
    """

    def __init__(self, engine: SessionEngine, *, max_batched_tokens: int | None = None) -> None:
        self._engine, self._max_batched_tokens = engine, max_batched_tokens or engine.step_tokens
        self._session: Session | None = None
        self._short_steps = ShortSteps()
        self._numbers = count()
        self._submissions: list[Submission] = []  # with waiting requests, in the order of arrival
        self._in_flight: dict[Key, SharedSequence] = {}
        self._running: dict[int, SharedSequence] = {}
        self._cancelled: list[int] = []
        self._changed = threading.Condition()
        self.has_failed = False  # at the last step
        threading.Thread(target=self._work, name="batch-scheduler", daemon=True).start()

    @property
    def max_prompt_tokens(self) -> int:
        return self._engine.max_prompt_tokens

    @property
    def n_running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Sequences that wait for a slot."""
        with self._changed:
            return len(self._in_flight) - len(self._running)

    def submit(self, requests: Sequence[Request], *, streams: bool = False) -> Submission:
        """Have `requests` run; with `streams` their tokens are told as they are drawn.

        Raises UserError for one that the model cannot take.
        """
        self._engine.check(requests)
        submission = Submission(len(requests), self._give_up, streams=streams)
        keys = [_key(request) for request in requests]
        order = sorted(range(len(requests)), key=lambda index: keys[index][0])
        with self._changed:
            for _, equal in groupby(order, key=lambda index: keys[index][0]):
                fresh = [
                    sequence
                    for index in equal
                    if (sequence := self._subscribe(submission, index, requests[index], keys[index])) is not None
                ]
                if fresh:
                    submission.waiting.append(fresh)
            if submission.waiting:
                self._submissions.append(submission)
            self._changed.notify()
        return submission

    def _subscribe(self, submission: Submission, index: int, request: Request, key: Key) -> SharedSequence | None:
        """The sequence that is to run for the request, None where one is under way."""
        running = self._in_flight.get(key)
        sequence = running or SharedSequence(next(self._numbers), request, key, submission)
        sequence.subscribers.append((submission, index))
        self._in_flight[key] = sequence
        return None if running else sequence

    def _give_up(self, submission: Submission, indices: Sequence[int]) -> None:
        cancelled = {(submission, index) for index in indices}
        with self._changed:
            for sequence in list(self._in_flight.values()):
                if cancelled.isdisjoint(sequence.subscribers):
                    continue
                sequence.subscribers = [pair for pair in sequence.subscribers if pair not in cancelled]
                if sequence.number in self._running:
                    if not sequence.subscribers:
                        self._leave(sequence)
                        self._cancelled.append(sequence.number)
                elif not sequence.subscribers or sequence.owner is submission:
                    self._move(sequence)
            self._changed.notify()

    def _move(self, sequence: SharedSequence) -> None:
        """Move a waiting sequence to the queue of another subscriber, or out of all."""
        old = sequence.owner
        others = ([other for other in group if other is not sequence] for group in old.waiting)
        old.waiting = deque(group for group in others if group)
        if not sequence.subscribers:
            del self._in_flight[sequence.key]
        else:
            sequence.owner = sequence.subscribers[0][0]
            sequence.owner.waiting.append([sequence])
            if sequence.owner not in self._submissions:
                self._submissions.append(sequence.owner)
        self._submissions = [waiting for waiting in self._submissions if waiting.waiting]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._submissions or self._running or self._cancelled)
                cancelled, self._cancelled = self._cancelled, []
            try:
                if self._session:
                    for number in cancelled:
                        self._session.cancel(number)
                with self._changed:
                    admitted, only = self._plan()
                if self._session and self._running:
                    self._session.add(admitted)
                    start_s = time.perf_counter()
                    ended = self._session.step(only)
                    duration_s = time.perf_counter() - start_s
                    self._short_steps.record(duration_s, is_short=only is not None, reads=bool(admitted))
                    self.has_failed = False
                    self._publish(self._session, ended)
            except BaseException as error:  # noqa: BLE001 - raised again by all whose requests it ends
                self._fail(error)

    def _plan(self) -> tuple[dict[int, Request], set[int] | None]:
        """Return the requests that enter with the next step, and the numbers it decodes: None for all that run."""
        is_short = self._short_steps.is_due and self._few_running() is not None
        admitted = self._admit_waiting(small_only=is_short)
        few = self._few_running() if self._short_steps.is_due else None
        return admitted, few if few is not None and few >= admitted.keys() else None

    def _few_running(self) -> set[int] | None:
        """The running sequences of small submissions; None if there are none, or too many of them."""
        numbers = {sequence.number for sequence in self._running.values() if self._is_small(sequence.owner)}
        return numbers if is_small(len(numbers), len(self._running)) else None

    def _is_small(self, submission: Submission) -> bool:
        return is_small(len(submission.n_seen), len(self._in_flight))

    def _admit_waiting(self, *, small_only: bool) -> dict[int, Request]:
        tokens = self._max_batched_tokens - len(self._running)
        admitted: dict[int, Request] = {}
        candidates = [candidate for candidate in self._submissions if not small_only or self._is_small(candidate)]
        while candidates:
            submission = min(candidates, key=lambda candidate: (candidate.n_running, len(candidate.n_seen)))
            group = submission.waiting[0]
            tokens -= len(group[0].request.prompt)
            if (admitted and tokens < 0) or not self._can_admit(group, len(admitted)):
                break
            if not admitted and self._is_small(submission):
                candidates = [candidate for candidate in candidates if self._is_small(candidate)]
            submission.waiting.popleft()
            if not submission.waiting:
                self._submissions.remove(submission)
                candidates = [candidate for candidate in candidates if candidate is not submission]
            submission.n_running += len(group)
            self._running.update((candidate.number, candidate) for candidate in group)
            admitted.update((candidate.number, candidate.request) for candidate in group)
        return admitted

    def _can_admit(self, group: Sequence[SharedSequence], n_admitted: int) -> bool:
        """Return whether a slot is free beyond those for `n_admitted`; open one with longer slots if none runs."""
        lengths = (len(member.request.prompt) + member.request.params.max_new_tokens for member in group)
        length = min(max(lengths), self._engine.max_prompt_tokens + 1)
        if self._session is None or self._session.max_len < length:
            if self._running:
                return False
            self._session = None  # frees its memory first
            self._session = self._engine.open_session(-(-length // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE)
        return self._session.n_free > n_admitted

    def _publish(self, session: Session, ended: Sequence[tuple[int, Completion]]) -> None:
        with self._changed:
            for number, completion in ended:
                sequence = self._running.get(number)
                if sequence is None:
                    continue  # cancelled during the step
                self._leave(sequence)
                for submission, index in sequence.subscribers:
                    submission.put(Ended(index, completion))
            for number, sequence in self._running.items():
                for submission, index in sequence.subscribers:
                    if submission.streams:
                        progress = session.generated(number, submission.n_seen[index])
                        submission.n_seen[index] += len(progress.token_ids)
                        if progress.token_ids:
                            submission.put(NewTokens(index, progress))

    def _leave(self, sequence: SharedSequence) -> None:
        del self._running[sequence.number], self._in_flight[sequence.key]
        sequence.owner.n_running -= 1

    def _fail(self, error: BaseException) -> None:
        """Fail all running requests, and the waiting ones if no session could be opened; the rest get a new session."""
        with self._changed:
            self.has_failed = True
            failed = list((self._in_flight if self._session is None else self._running).values())
            logger.error("the engine failed, and %d sequences with it", len(failed), exc_info=error)
            self._session, self._cancelled = None, []
            subscribers = {submission for sequence in failed for submission, _ in sequence.subscribers}
            for submission in subscribers:
                submission.put(error)
                self._give_up(submission, range(len(submission.n_seen)))
            self._cancelled = []


def _key(request: Request) -> Key:
    """Return all that the completion depends on; a greedy one does not depend on the random stream."""
    params, stream_id = request.params, request.stream_id
    if params.temperature == 0:
        params, stream_id = replace(params, seed=0), 0
    return tuple(request.prompt), params, stream_id


class ShortSteps:
    """Decides when small submissions may take a step of their own.

    Where a step takes longer with more sequences, as on a CPU, a small submission beside a large one would wait for all
    of it at each of its tokens. So after every step of all, the small ones may take `SHARE` times as long for
    themselves: they end several times sooner, and the large one loses little.

    Small are those whose sequences are at most 1/`SMALL` of the batch; if a step of theirs is not `CHEAPER` times
    quicker than one of all, as on a GPU, they take none.
    """

    def __init__(self) -> None:
        self._credit_s = self._full_s = self._short_s = 0.0

    @property
    def is_due(self) -> bool:
        """True if the next step may be a short one."""
        return self._credit_s > 0 and self._short_s * CHEAPER <= self._full_s

    def record(self, duration_s: float, *, is_short: bool, reads: bool) -> None:
        """Record the duration of a step; `reads`: it prefilled prompts, so a short one does not predict the next."""
        if is_short:
            self._credit_s -= duration_s
            self._short_s = self._short_s if reads else duration_s
        else:
            self._credit_s = SHARE * duration_s
            self._full_s = duration_s
            self._short_s *= FORGETTING


def is_small(n_sequences: int, n_all: int) -> bool:
    """Return whether this many sequences are few among all."""
    return 0 < SMALL * n_sequences <= n_all
