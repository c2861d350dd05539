"""An engine for several callers at once."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.engine.api import Completion, Engine, OnFinished, Request
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.submission import Ended
from grrm.errors import UserError
from grrm.judges.deadline import Deadline

POLL_S = 0.2  # between a waiting caller's checks whether its own client has gone


class SharedEngine(Engine):
    """An engine for several threads at once: the completions of all their calls are drawn in one batch.

    What is not there at the `deadline` of a call ends with finish_reason "timeout" and no tokens. Raises Abandoned
    where nobody waits for the call any more.
    """

    def __init__(self, scheduler: BatchScheduler, deadline: Deadline | None = None) -> None:
        self._scheduler, self._deadline = scheduler, deadline or Deadline()

    @property
    def max_prompt_tokens(self) -> int:
        return self._scheduler.max_prompt_tokens

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        submission = self._scheduler.submit(requests)
        completions = [Completion([], [], "timeout")] * len(requests)
        try:
            while submission.open and (remaining_s := self._deadline.remaining_s()) > 0:
                event = submission.next(min(remaining_s, POLL_S))
                if isinstance(event, Ended):
                    completions[event.index] = event.completion
                    on_finished(event.index, event.completion)
        finally:
            submission.cancel()
        return completions

    def update_weights(self, version: int = 0) -> None:
        """Always refused with a UserError: the batch that runs was begun with other weights."""
        raise UserError("the weights of an engine that several callers share cannot change: use one of their own")
