"""A time limit for a judge's model, even one that cannot be interrupted."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from grrm.judges.interface import GeneratedText, TextGenerator

T = TypeVar("T")


def in_thread(name: str, act: Callable[[], T]) -> Future[T]:
    """The future result or exception of `act`, in a daemon thread, which cannot keep a failed process alive."""
    result: Future[T] = Future()
    threading.Thread(target=_settle, args=(result, act), name=name, daemon=True).start()
    return result


def _settle(result: Future[T], act: Callable[[], T]) -> None:
    try:
        result.set_result(act())
    except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the result
        result.set_exception(error)


class DeadlinePassed(Exception):
    """A call missed its deadline."""


class Abandoned(Exception):
    """The caller no longer waits for the current work."""


class Deadline(threading.local):
    """The deadline of this thread's current work, as `within` sets it; no limit outside of `within`."""

    def __init__(self) -> None:
        self._at = math.inf
        self._is_abandoned: Callable[[], bool] = lambda: False

    def remaining_s(self) -> float:
        """Seconds until the deadline, 0 once it has passed, infinity without one. Raises Abandoned."""
        if self._is_abandoned():
            raise Abandoned
        return max(self._at - time.monotonic(), 0.0)

    @contextmanager
    def within(self, seconds: float, is_abandoned: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Set the deadline to `seconds` from now for the block; `is_abandoned` says if the caller no longer waits."""
        self._at, self._is_abandoned = time.monotonic() + seconds, is_abandoned
        try:
            yield
        finally:
            self._at, self._is_abandoned = math.inf, lambda: False


class CallThread(Generic[T]):
    """A daemon thread that executes calls sequentially, for callers with a timeout.

    A call that has started runs to completion even if its result is no longer needed. A stuck call does not keep the
    process alive.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[T], Callable[[], T]]] = SimpleQueue()
        self._last: Future[T] | None = None  # the last call made, queued or running
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def begin(self, act: Callable[[], T], seconds: float) -> Callable[[], T]:
        """Queue a call of `act`; the returned function waits for its result until `seconds` from now.

        It raises what `act` raises, and DeadlinePassed on a timeout; a call that has not started by then is cancelled.
        """
        until = time.monotonic() + seconds
        result: Future[T] = Future()
        before, self._last = self._last, result
        self._calls.put((result, act))

        def wait() -> T:
            futures.wait([result], None if math.isinf(until) else max(until - time.monotonic(), 0.0))
            if result.done():
                return result.result()
            if result.cancel() and self._last is result:
                self._last = before
            raise DeadlinePassed

        return wait

    def when_idle(self, act: Callable[[], None]) -> None:
        """Calls `act` as soon as no call is running: now, or later from the thread."""
        if self._last is None:
            act()
        else:
            self._last.add_done_callback(lambda _: act())

    def _work(self) -> None:
        while True:
            result, act = self._calls.get()
            if result.set_running_or_notify_cancel():
                _settle(result, act)


class TimedCounts:
    """`inner`, whose tokens are counted until the deadline only: counting for many long prompts takes minutes."""

    def __init__(self, inner: TextGenerator, remaining_s: Callable[[], float]) -> None:
        self.generate_text = inner.generate_text
        self._count_tokens, self._remaining_s = inner.count_tokens, remaining_s

    def count_tokens(self, prompt: str) -> int:
        """The tokens that `inner` counts. Raises DeadlinePassed, and Abandoned where nobody waits any more."""
        if not self._remaining_s():
            raise DeadlinePassed
        return self._count_tokens(prompt)


class TimedGenerator:
    """`inner` under a deadline: on a timeout, the replies to all prompts of the call are marked "timeout".

    `inner` runs in its own thread, one call at a time, so it need not be thread-safe; `when_idle` reports the end of a
    call that timed out.
    """

    def __init__(self, inner: TextGenerator, remaining_s: Callable[[], float]) -> None:
        self._inner = inner
        self._remaining_s = remaining_s
        self._calls: CallThread[list[GeneratedText]] = CallThread("judge-model")

    def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
        """One reply per prompt, order kept, or the mark "timeout" for each. Raises what `inner` raises in time."""
        call = partial(self._inner.generate_text, prompts, **sampling)
        wait = self._calls.begin(call, self._remaining_s())
        try:
            return wait()
        except DeadlinePassed:
            return [GeneratedText("", "timeout", 0)] * len(prompts)

    def count_tokens(self, prompt: str) -> int:
        """The tokens that `inner` counts. Not while a call runs: its tokenizer need not be thread-safe."""
        return self._inner.count_tokens(prompt)

    def when_idle(self, act: Callable[[], None]) -> None:
        """Calls `act` as soon as no call is running: now, or later from the model's thread."""
        self._calls.when_idle(act)
