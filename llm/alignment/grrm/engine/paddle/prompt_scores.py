"""Log-probabilities of the tokens of prompts, from logits that come in parts, and of the most probable tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.engine import sampling
from grrm.engine.api import PromptScores, Request, SamplingParams, TopTokens
from grrm.engine.paddle import gpu_sampling


class PromptScoring:
    """Collects the `scores` of requests with the same prompt, by number; calls of `add` must be in order.

    Position t of the logits predicts token t + 1 of the prompt; those of the last one predict none of them. Only the
    part of the logits that `add` is called with exists, so the memory does not grow with prompt times vocabulary.
    """

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self._by_kind: dict[tuple[float, int], tuple[Request, PromptScores]] = {}
        self.scores = {number: self._scores_of(request) for number, request in requests.items()}

    def _scores_of(self, request: Request) -> PromptScores:
        """Shared by the requests that differ in what their prompt's scores do not depend on."""
        kind = request.params.temperature, request.params.top_logprobs
        return self._by_kind.setdefault(kind, (request, PromptScores([], [])))[1]

    def add(self, begin: int, logits_NV: Any) -> None:
        """Take the logits of the positions from `begin` on. Raises FloatingPointError for some that are not finite."""
        for request, scores in self._by_kind.values():
            targets_N = np.array(request.prompt[begin + 1 : begin + 1 + len(logits_NV)], np.int64)
            if not len(targets_N):
                continue
            logits = logits_NV[: len(targets_N)]
            logprobs_N, top = _module_for(logits).token_logprobs(logits, targets_N, request.params)
            scores.logprobs.extend(logprobs_N.tolist())
            if top is not None:
                scores.top_logprobs.extend(_pairs(*top))


def unscored(
    group: Sequence[tuple[int, int]], requests: Mapping[int, Request], scores: Mapping[int, PromptScores]
) -> dict[int, Request]:
    """The requests of a group, as (number, slot), whose prompt is still to be scored."""
    return {n: requests[n] for n, _ in group if requests[n].params.prompt_logprobs and n not in scores}


def top_tokens(logits_SV: Any, tokens_S: NDArray[np.int64], params: SamplingParams) -> Sequence[TopTokens]:
    """The most probable tokens in the place of each sampled one, without what a constraint forbids."""
    return _pairs(*_module_for(logits_SV).token_logprobs(logits_SV, tokens_S, params)[1])


def _module_for(logits: Any) -> Any:
    return sampling if isinstance(logits, np.ndarray) else gpu_sampling


def _pairs(tokens_SK: Any, logprobs_SK: Any) -> Sequence[TopTokens]:
    rows = zip(tokens_SK.tolist(), logprobs_SK.tolist(), strict=True)
    return [[pair for pair in zip(*row, strict=True) if pair[1] > -math.inf] for row in rows]
