"""A time limit on what a judge's model may take, also for a model that cannot be interrupted."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, TimeoutError
from contextlib import contextmanager
from queue import SimpleQueue

from grrm.judges.interface import GeneratedText, TextGenerator

Call = Callable[[], list[GeneratedText]]


class Deadline:
    """The moment by which the work under way must be done; there is none outside of `within`. One work at a time."""

    def __init__(self) -> None:
        self._at = math.inf

    def seconds_left(self) -> float:
        """Seconds until then, 0 once it has passed, infinity where there is no limit."""
        return max(self._at - time.monotonic(), 0.0)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Gives what happens inside `seconds` from now."""
        self._at = time.monotonic() + seconds
        try:
            yield
        finally:
            self._at = math.inf


class TimedGenerator:
    """`inner` under a deadline: prompts whose replies are not there in time are marked "timeout", all of the call.

    `inner` works in one thread of its own, one call after the other, so it need not be thread-safe; a call that has
    begun runs to its end, though nobody waits for it any more. `when_idle` tells when that is. The thread is a daemon:
    a stuck model cannot keep the process alive.
    """

    def __init__(self, inner: TextGenerator, seconds_left: Callable[[], float]) -> None:
        self._inner = inner
        self._seconds_left = seconds_left
        self._calls: SimpleQueue[tuple[Future[list[GeneratedText]], Call]] = SimpleQueue()
        self._last: Future[list[GeneratedText]] | None = None  # the last call that has begun, or will
        threading.Thread(target=self._work, name="judge-model", daemon=True).start()

    def generate_text(
        self,
        prompts: Sequence[str],
        *,
        temperature: float,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[int] | None = None,
    ) -> list[GeneratedText]:
        """One reply per prompt, order kept, or the mark "timeout" for each. Raises what `inner` raises in time."""

        def call() -> list[GeneratedText]:
            return self._inner.generate_text(
                prompts, temperature=temperature, top_p=top_p, max_new_tokens=max_new_tokens, seeds=seeds
            )

        seconds = self._seconds_left()
        replies: Future[list[GeneratedText]] = Future()
        before, self._last = self._last, replies
        self._calls.put((replies, call))
        try:
            return replies.result(None if math.isinf(seconds) else seconds)
        except TimeoutError:
            if replies.cancel():
                self._last = before
            return [GeneratedText("", "timeout", 0)] * len(prompts)

    def count_tokens(self, prompt: str) -> int:
        """As `inner` counts; only when nothing is left running, as its tokenizer need not be thread-safe either."""
        return self._inner.count_tokens(prompt)

    def when_idle(self, act: Callable[[], None]) -> None:
        """Calls `act` once no call is running any more: at once, or from the model's thread."""
        if self._last is None:
            act()
        else:
            self._last.add_done_callback(lambda _: act())

    def _work(self) -> None:
        while True:
            replies, call = self._calls.get()
            if not replies.set_running_or_notify_cancel():
                continue
            try:
                replies.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the replies
                replies.set_exception(error)
