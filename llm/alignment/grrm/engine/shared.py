"""An engine for several callers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grrm.engine.api import Completion, Request, SamplingParams, streams_of
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.submission import Ended
from grrm.errors import UserError
from grrm.judges.deadline import Deadline

POLL_S = 0.2  # how often a caller that waits looks whether anyone waits for it


class SharedEngine:
    """An `Engine` for several threads at once: the completions of all their calls are drawn in one batch.

    What is not there at the `deadline` of a call ends with finish_reason "timeout" and no tokens. Raises Abandoned
    where nobody waits for the call any more.
    """

    def __init__(self, scheduler: BatchScheduler, deadline: Deadline | None = None) -> None:
        self._scheduler, self._deadline = scheduler, deadline or Deadline()
        self.max_prompt_tokens = scheduler.max_prompt_tokens

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, order kept."""
        streams = streams_of(prompts, stream_ids)
        submission = self._scheduler.submit(
            [Request(prompt, params, stream) for prompt, stream in zip(prompts, streams, strict=True)]
        )
        completions = [Completion([], [], "timeout")] * len(prompts)
        try:
            while submission.open and (left_s := self._deadline.seconds_left()) > 0:
                event = submission.next(min(left_s, POLL_S))
                if isinstance(event, Ended):
                    completions[event.index] = event.completion
                    if on_finished is not None:
                        on_finished(event.index, event.completion)
        finally:
            submission.cancel()
        return completions

    def update_weights(self) -> None:
        """Always refused with a UserError: the batch that runs was begun with other weights."""
        raise UserError("the weights of an engine that several callers share cannot change: use one of their own")

    def sleep(self) -> None:
        """Nothing to release between calls: another caller's may be running."""

    def wake(self) -> None:
        """Nothing to undo."""
