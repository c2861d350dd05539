"""A time limit for a judge's model, even one that cannot be interrupted."""

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
    """When the current piece of work must be done, as `within` sets it; no limit outside of `within`."""

    def __init__(self) -> None:
        self._at = math.inf

    def seconds_left(self) -> float:
        """Seconds until the deadline, 0 once it has passed, infinity without one."""
        return max(self._at - time.monotonic(), 0.0)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the deadline to `seconds` from now while the block runs."""
        self._at = time.monotonic() + seconds
        try:
            yield
        finally:
            self._at = math.inf


class TimedGenerator:
    """`inner` under a deadline: when a call is late, the replies to all its prompts are marked "timeout".

    `inner` runs in a thread of its own, one call after the other, so it need not be thread-safe. A call that has begun
    runs to its end even when its result is no longer wanted; `when_idle` reports that end. The thread is a daemon, so
    that a stuck model does not keep the process alive.
    """

    def __init__(self, inner: TextGenerator, seconds_left: Callable[[], float]) -> None:
        self._inner = inner
        self._seconds_left = seconds_left
        self._calls: SimpleQueue[tuple[Future[list[GeneratedText]], Call]] = SimpleQueue()
        self._last: Future[list[GeneratedText]] | None = None  # the last call made, queued or running
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
        """The tokens that `inner` counts. Not while a call runs: its tokenizer need not be thread-safe."""
        return self._inner.count_tokens(prompt)

    def when_idle(self, act: Callable[[], None]) -> None:
        """Calls `act` as soon as no call is running: now, or later from the model's thread."""
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
