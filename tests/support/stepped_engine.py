"""An engine that a test steps: a completion counts on from its prompt's last token, one more a step."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence, Set

from grrm.engine.api import Completion, Progress, PromptScores, Request, SamplingParams, check_requests


def progress(request: Request, tokens: list[int]) -> Progress:
    n_top = request.params.top_logprobs
    tops = [[(token + other, -1.0 - other) for other in range(n_top)] for token in tokens if n_top]
    scores = PromptScores([-3.0] * (len(request.prompt) - 1), []) if request.params.prompt_logprobs else None
    return Progress(tokens, [-1.0] * len(tokens), tops, scores)


class SteppedSession:
    def __init__(self, engine: SteppedEngine, max_len: int) -> None:
        self.engine, self.max_len = engine, max_len
        self.running: dict[int, tuple[Request, list[int]]] = {}

    @property
    def n_free(self) -> int:
        return self.engine.n_slots - len(self.running)

    def add(self, requests: Mapping[int, Request]) -> None:
        for request in requests.values():
            length = len(request.prompt) + request.params.max_new_tokens
            assert min(length, self.engine.max_prompt_tokens + 1) <= self.max_len
        if requests:
            self.engine.entered.append([tuple(request.prompt) for request in requests.values()])
            self.engine.params += [request.params for request in requests.values()]
        self.running.update({number: (request, []) for number, request in requests.items()})

    def cancel(self, number: int) -> None:
        if self.running.pop(number, None) is not None:
            self.engine.n_cancelled += 1

    def generated(self, number: int, start: int = 0) -> Progress:
        request, tokens = self.running[number]
        return progress(request, tokens[start:])

    def step(self, only: Set[int] | None = None) -> list[tuple[int, Completion]]:
        assert self.engine.steps.acquire(timeout=120)
        if self.engine.fault is not None:
            fault, self.engine.fault = self.engine.fault, None
            raise fault
        ended = []
        self.engine.stepped.append(set(self.running) if only is None else set(only))
        for number, (request, tokens) in [one for one in self.running.items() if only is None or one[0] in only]:
            tokens.append(request.prompt[-1] + len(tokens) + 1)
            if len(tokens) == request.params.max_new_tokens:
                token_ids, logprobs, tops, scores = progress(request, list(tokens))
                ended.append((number, Completion(token_ids, logprobs, "stop", None, tops, scores)))
                del self.running[number]
        self.engine.n_steps += 1
        return ended


class SteppedEngine:
    """`entered` holds the prompts that began at each step, `params` those of every request; `fault` is raised by the
    next step.

    `n_beside` counts the sessions that were opened while the one before was still held.
    """

    max_prompt_tokens = 10**7
    step_tokens = 4096

    def __init__(self, n_slots: int = 100, *, stands_still: bool = False) -> None:
        self.n_slots = n_slots
        self.entered: list[list[tuple[int, ...]]] = []
        self.params: list[SamplingParams] = []
        self.stepped: list[set[int]] = []
        self.n_cancelled = self.n_steps = self.n_sessions = self.n_beside = 0
        self.fault: Exception | None = None
        self._latest: Callable[[], SteppedSession | None] = lambda: None
        self.steps = threading.Semaphore(0 if stands_still else 10**9)

    def open_session(self, max_len: int | None = None) -> SteppedSession:
        self.n_sessions += 1
        self.n_beside += self._latest() is not None
        session = SteppedSession(self, min(max_len or self.max_prompt_tokens + 1, self.max_prompt_tokens + 1))
        self._latest = weakref.ref(session)
        return session

    def check(self, requests: Sequence[Request]) -> None:
        check_requests(requests, self.max_prompt_tokens, 10**9, "engine")

    def go(self, n_steps: int = 10**6) -> None:
        """Let it take so many steps."""
        self.steps.release(n_steps)
