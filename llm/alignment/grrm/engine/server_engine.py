"""Rollouts on a serving engine of its own: completions over HTTP, and weights that it takes over from a folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import (
    Completion,
    Engine,
    OnFinished,
    Request,
    SamplingParams,
    check_requests,
    check_widely_served,
)
from grrm.engine.openai_wire import COMPLETIONS_PATH, WHICH_MODEL, CompletionCall
from grrm.engine.rollout_wire import RolloutApi
from grrm.errors import UserError
from grrm.http_client.client import HttpClient, NoAnswer
from grrm.http_client.exchange import AnswerError, Failure

logger = logging.getLogger(__name__)
# Versions of servers that have taken over no weights, and of those that were cut off while they did, or sleep.
_AT_START, _UNKNOWN = -1, -2
_RESUME_S = 10.0  # time limit of resuming servers whose update failed


@dataclass(frozen=True, slots=True)
class WeightsCheck:
    """Compares a server with the trainer: log-probabilities of what the server samples for a few fixed requests.

    `score(prompts, responses)` returns those of the trainer's weights, [T] of each response; a collective of its tensor
    ranks. `limit` bounds the mean absolute difference, in nats per token.
    """

    requests: Sequence[Request]
    score: Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], list[NDArray[Any]]]
    limit: float

    def gap(self, samples: Sequence[Completion]) -> float:
        """The mean absolute difference over all tokens of the `samples`, one of each request."""
        expected = self.score([request.prompt for request in self.requests], [sample.token_ids for sample in samples])
        pairs = zip(samples, expected, strict=True)
        return float(np.abs(np.concatenate([np.asarray(sample.logprobs) - own_T for sample, own_T in pairs])).mean())

    def require(self, server: str, gap: float, version: int) -> None:
        """Raises UserError for a `gap` above the limit, after the update to `version`."""
        if not gap <= self.limit:
            raise UserError(
                f"rollout server {server} differs from the trainer after the update to step {version}, by {gap:.3g} "
                f"nats per token in log-probabilities of {len(self.requests)} prompts: probably it kept earlier "
                "weights, all or those of an output layer tied to the embedding, or serves another model; correct it, "
                f"or raise rollout_check_limit {self.limit:g} for a server that only rounds more"
            )


class ServerEngine(Engine):
    """An engine over FastDeploy or vLLM servers of the policy; several URLs are a pool.

    `publish(version)` is a collective of all trainer ranks that leaves the policy's current weights in a model folder
    which the servers see as well, once for each version. `together(work)` does `work` on the first rank and has every
    rank go on, or raise, together.

    Each completion carries the version (the step) of the weights that sampled it: the one that its server acknowledged
    last, or what the server itself reports. A call takes at most the `deadline_s` of `client`.

    A server that could not load the last weights stays in use while it is at most `max_staleness` updates behind, and
    is updated at the next one; an answer from older weights is refused. No server stays paused by a failed update.

    `check` is made after every update, with every server that took part in it.

    With `releases`, servers have no memory for weights and KV cache from `sleep` to the next update, which then reads
    the weights again: for servers on the trainer's devices.
    """

    is_remote = True

    def __init__(
        self,
        client: HttpClient,
        api: RolloutApi,
        *,
        vocab_size: int,
        max_positions: int,
        publish: Callable[[int], Path],
        together: Callable[[Callable[[], Any]], Any],
        max_staleness: int = 0,
        model: str | None = None,
        check: WeightsCheck | None = None,
        releases: bool = False,
    ) -> None:
        self._client, self._api, self._model, self._check = client, api, model, check
        self._vocab_size, self._max_positions = vocab_size, max_positions
        self._publish, self._together, self._max_staleness = publish, together, max_staleness
        self._releases = releases
        self._published: list[int] = []
        self._versions = dict.fromkeys(client.pool.urls, _AT_START)

    @property
    def max_prompt_tokens(self) -> int:
        return self._max_positions - 1

    def update_weights(self, version: int = 0) -> None:
        """Have every server pause, take over the trainer's weights and go on; nothing where they have them.

        Raises UserError, on every rank, when one fails, or with `max_staleness` when none is left that is fresh enough,
        and when one does not pass the check of its weights.
        """
        if self._published[-1:] == [version] and set(self._versions.values()) != {_UNKNOWN}:
            return
        folder = self._publish(version)
        self._published.append(version)
        self._versions = self._together(lambda: self._update_servers(folder, version))
        if self._check is not None:
            self._verify(self._check, version)

    def sleep(self) -> None:
        """Have every server give up its memory, with `releases`, once all ranks have sampled. A collective.

        Raises UserError, on every rank, when one does not.
        """
        if self._releases:
            self._together(lambda: None)  # a rank that still samples is waited for
            self._together(self._release)
            self._versions = dict.fromkeys(self._versions, _UNKNOWN)

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """See `Engine.generate`; `on_finished` is called from the threads of the requests.

        Raises NoAnswer when some prompt got no completion in time; nothing is made up for it.
        """
        for params in dict.fromkeys(request.params for request in requests):
            self._api.check(params)
            check_widely_served(params, "a rollout server")
        limit = f"model's max_position_embeddings of {self._max_positions}"
        check_requests(requests, self.max_prompt_tokens, self._vocab_size, limit)
        if not requests:
            return []
        usable = [url for url, version in self._versions.items() if version in self._usable]
        return self._client.ask_all(*self._calls(requests, [usable] * len(requests)), on_finished)

    def _calls(
        self, requests: Sequence[Request], servers: Sequence[Sequence[str]]
    ) -> tuple[list[CompletionCall[Completion]], float]:
        """A call for each request, to one of its `servers`, and the deadline of all."""
        deadline = time.monotonic() + self._client.deadline_s
        if self._model is None:
            (self._model,) = self._client.ask_all([WHICH_MODEL], deadline)
        calls = []
        for i, (request, urls) in enumerate(zip(requests, servers, strict=True)):
            body, read = self._api.body(self._model, request), partial(self._read, request.params)
            calls.append(CompletionCall(f"prompt {i}", COMPLETIONS_PATH, body, read, servers=urls))
        return calls, deadline

    def _read(self, params: SamplingParams, content: bytes, server: str) -> Completion:
        """The completion in an answer, with the version of the weights that drew it."""
        completion = self._api.read(content, params)
        if max(completion.token_ids) >= self._vocab_size:
            raise AnswerError(
                f"it drew token {max(completion.token_ids)} of a vocabulary larger than the policy's of "
                f"{self._vocab_size}, so it serves another model"
            )
        version = self._versions[server] if completion.weight_version is None else completion.weight_version
        if version not in self._usable:
            raise AnswerError(f"it drew with weights of step {version}, and the trainer is at {self._usable[-1]}")
        return replace(completion, weight_version=version)

    @property
    def _usable(self) -> list[int]:
        """The versions of the weights that rollouts may come from."""
        return self._published[-1 - self._max_staleness :] or [_AT_START]

    def _verify(self, check: WeightsCheck, version: int) -> None:
        """Check the servers with this version of the weights. A collective."""
        samples = self._together(lambda: self._samples(check.requests, version))
        self._versions.update((url, _UNKNOWN) for url, of_server in samples.items() if of_server is None)
        gaps = {url: check.gap(of_server) for url, of_server in samples.items() if of_server is not None}

        def require_all() -> None:
            for url, gap in gaps.items():
                check.require(url, gap, version)

        self._together(require_all)

    def _samples(self, requests: Sequence[Request], version: int) -> dict[str, list[Completion] | None]:
        """The completions of each server with this version; with `max_staleness`, None of one that does not answer.

        Raises NoAnswer where one is refused or malformed, and as `_go_on`.
        """
        fresh, n = [url for url, has in self._versions.items() if has == version], len(requests)
        calls, deadline = self._calls([*requests] * len(fresh), [[url] for url in fresh for _ in requests])
        wrong = (Failure.MALFORMED, Failure.REFUSED)  # the server answers, but something is wrong
        answers = self._client.try_all(calls, deadline, lambda error: error.failure not in wrong)
        samples, failed = dict[str, list[Completion] | None](), dict[str, NoAnswer]()
        for i, url in enumerate(fresh):
            of_server = answers[i * n : (i + 1) * n]
            failed.update((url, answer) for answer in of_server if isinstance(answer, NoAnswer))
            samples[url] = None if url in failed else [sample for sample in of_server if isinstance(sample, Completion)]
        self._go_on(failed, {url: _UNKNOWN if url in failed else has for url, has in self._versions.items()})
        return samples

    def _go_on(self, failed: Mapping[str, NoAnswer], versions: Mapping[str, int]) -> None:
        """Log the servers that failed. Raises one's NoAnswer when the servers' `versions` do not allow that."""
        if failed and (not self._max_staleness or set(self._usable).isdisjoint(versions.values())):
            raise next(iter(failed.values()))
        for url, error in failed.items():
            logger.warning("rollout server %s is not up to date: %s", url, error)

    def _release(self) -> None:
        deadline = time.monotonic() + self._client.deadline_s
        for step in self._api.release():
            for answer in self._client.ask_each(self._client.pool.urls, step, deadline).values():
                if isinstance(answer, NoAnswer):
                    raise answer

    def _update_servers(self, folder: Path, version: int) -> dict[str, int]:
        """The version that each server has after this."""
        deadline = time.monotonic() + self._client.deadline_s
        versions, remaining, failed = dict(self._versions), self._client.pool.urls, {}
        steps = self._api.steps(folder, releases=self._releases)
        paused = set(remaining)
        try:
            for number, step in enumerate(steps):
                step.patient = not self._max_staleness  # others need not wait for a server that may miss an update
                answers = self._client.ask_each(remaining, step, deadline)
                unanswered = {url: error for url, error in answers.items() if isinstance(error, NoAnswer)}
                if number > 0:  # it has old weights, new ones or parts of both
                    versions.update(dict.fromkeys(unanswered, _UNKNOWN))
                failed.update(unanswered)
                remaining = [url for url in remaining if url not in unanswered]
            paused.difference_update(remaining)
        finally:  # also of those whose pause failed: the answer may have been lost
            resume = replace(steps[-1], patient=False)
            self._client.ask_each(sorted(paused), resume, time.monotonic() + _RESUME_S)
        versions.update(dict.fromkeys(remaining, version))
        self._go_on(failed, versions)
        return versions
