"""Rollouts on a serving engine of its own: completions over HTTP, and weights that it takes over from a folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from grrm.engine.api import Completion, Engine, OnFinished, Request, SamplingParams, check_requests
from grrm.engine.openai_wire import COMPLETIONS_PATH, WHICH_MODEL, CompletionCall
from grrm.engine.rollout_wire import RolloutApi
from grrm.errors import UserError
from grrm.http_client.client import HttpClient, NoAnswer
from grrm.http_client.messages import AnswerError

logger = logging.getLogger(__name__)
_AT_START, _UNKNOWN = -1, -2  # versions of servers that have taken over no weights, or were cut off while they did


class ServerEngine(Engine):
    """An engine over FastDeploy or vLLM servers of the policy; several URLs are a pool.

    `publish(version)` is a collective of all trainer ranks that leaves the policy's current weights in a model folder
    which the servers see as well, once for each version. `together(work)` does `work` on the first rank and has every
    rank go on, or raise, together.

    Each completion carries the version (the step) of the weights that sampled it: the one that its server acknowledged
    last, or what the server itself reports. A call takes at most the `deadline_s` of `client`.

    A server that could not load the last weights stays in use while it is at most `max_staleness` updates behind, and
    is updated at the next one; an answer from older weights is refused.
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
    ) -> None:
        self._client, self._api, self._model = client, api, model
        self._vocab_size, self._max_positions = vocab_size, max_positions
        self._publish, self._together, self._max_staleness = publish, together, max_staleness
        self._published = [_AT_START]
        self._versions = dict.fromkeys(client.pool.urls, _AT_START)

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that leaves room for one token."""
        return self._max_positions - 1

    def update_weights(self, version: int = 0) -> None:
        """Have every server pause, take over the trainer's weights and go on; nothing where they have them.

        Raises UserError, on every rank, when one fails, or with `max_staleness` when none is left that is fresh enough.
        """
        if self._published[-1] == version:
            return
        folder = self._publish(version)
        self._published.append(version)
        self._versions = self._together(lambda: self._update_servers(folder, version))

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """See `Engine.generate`; `on_finished` is called from the threads of the requests.

        Raises NoAnswer when some prompt got no completion in time; nothing is made up for it.
        """
        for params in dict.fromkeys(request.params for request in requests):
            self._api.check(params)
            if params.top_logprobs:
                raise UserError("rollout servers give no top_logprobs: leave them out, or use the Paddle engine")
        limit = f"model's max_position_embeddings of {self._max_positions}"
        check_requests(requests, self.max_prompt_tokens, self._vocab_size, limit)
        if not requests:
            return []
        deadline = time.monotonic() + self._client.deadline_s
        if self._model is None:
            (self._model,) = self._client.ask_all([WHICH_MODEL], deadline)
        fresh = [url for url, version in self._versions.items() if version in self._usable]
        calls = []
        for i, request in enumerate(requests):
            body, read = self._api.body(self._model, request), partial(self._read, request.params)
            calls.append(CompletionCall(f"prompt {i}", COMPLETIONS_PATH, body, read, servers=fresh))
        return self._client.ask_all(calls, deadline, on_finished)

    def _read(self, params: SamplingParams, content: bytes, server: str) -> Completion:
        """The completion in an answer, with the version of the weights that drew it."""
        completion = self._api.read(content, params)
        version = self._versions[server] if completion.weight_version is None else completion.weight_version
        if version not in self._usable:
            raise AnswerError(f"it drew with weights of step {version}, and the trainer is at {self._published[-1]}")
        return replace(completion, weight_version=version)

    @property
    def _usable(self) -> list[int]:
        """The versions that rollouts may be of."""
        return self._published[-1 - self._max_staleness :]

    def _update_servers(self, folder: Path, version: int) -> dict[str, int]:
        """The version that each server has after this."""
        deadline = time.monotonic() + self._client.deadline_s
        versions, remaining, failed = dict(self._versions), self._client.pool.urls, {}
        for number, step in enumerate(self._api.steps(folder)):
            step.patient = not self._max_staleness  # the others need not wait for a server that may miss an update
            answers = self._client.ask_each(remaining, step, deadline)
            unanswered = {url: error for url, error in answers.items() if isinstance(error, NoAnswer)}
            if number > 0:  # it is paused, with old weights, new ones or parts of both
                versions.update(dict.fromkeys(unanswered, _UNKNOWN))
            failed.update(unanswered)
            remaining = [url for url in remaining if url not in unanswered]
        versions.update(dict.fromkeys(remaining, version))
        if failed and (not self._max_staleness or set(self._usable).isdisjoint(versions.values())):
            raise next(iter(failed.values()))
        for url, error in failed.items():
            logger.warning("rollout server %s is not up to date: %s", url, error)
        return versions
