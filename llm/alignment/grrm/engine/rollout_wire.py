"""Wire format of rollouts on serving engines: token ids in, ids and log-probabilities out, and weight updates.

Written against FastDeploy 2.6 (entrypoints/openai/protocol.py, docs/features/weight_update.md at d533d0c, and the
worker's rl/dynamic_weight_manager.py at 49fe57c) and vLLM 0.16 (entrypoints/openai, entrypoints/serve/rlhf, the
worker's reload_weights; for sleeping 0.32). One prompt a request: FastDeploy adds up the log-probabilities of all
prompts of a request.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError

from grrm.engine.api import Completion, Request, SamplingParams
from grrm.engine.openai_wire import WireAnswer
from grrm.errors import UserError
from grrm.http_client.client import Call
from grrm.http_client.exchange import AnswerError, parse_answer, single_line

# A token that is all but impossible; vLLM cuts logarithms off at -9999.
_IMPOSSIBLE = -9000.0


class _Logprobs(WireAnswer):
    token_logprobs: list[Annotated[float, Field(le=1e-3, allow_inf_nan=False)]]


class _Choice(WireAnswer):
    logprobs: _Logprobs | None = None
    token_ids: list[Annotated[int, Field(ge=0)]] | None = None  # vLLM
    completion_token_ids: list[Annotated[int, Field(ge=0)]] | None = None  # FastDeploy
    finish_reason: str | None = None


class _Completion(WireAnswer):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    weight_version: int | None = None


class _Control(WireAnswer):
    """Answer to a control call: FastDeploy's fields beside the status, of which vLLM has fewer."""

    error_code: int | None = None
    error_message: str | None = None
    status: str | None = None


def _step(question: str, path: str, body: dict[str, Any] | None = None) -> Call[None]:
    """One request of a change of weights."""
    return Call(question, path, None if body is None else json.dumps(body).encode(), _read_control)


def _read_control(content: bytes, server: str) -> None:
    """Raises AnswerError where the answer to a step says that it failed."""
    try:
        answer = _Control.model_validate_json(content or b"{}")
    except ValidationError:
        return  # no object: the status 200 is all it says
    if answer.error_code not in (None, 0, 200) or answer.status in ("error", "failed"):
        raise AnswerError(f"it says {single_line(answer.error_message or 'error')}")


class RolloutApi(ABC):
    """Requests of one kind of server."""

    name: ClassVar[str]
    max_seed: ClassVar[int]
    ids: ClassVar[str]  # the field with the ids of the drawn tokens

    @abstractmethod
    def fields(self, params: SamplingParams) -> dict[str, Any]:
        """The fields that only this kind of server has, or has a meaning of its own for."""

    @abstractmethod
    def release(self) -> tuple[Call[None], ...]:
        """Give up the memory of weights and KV cache; each may be asked again."""

    @abstractmethod
    def steps(self, weights: Path, *, releases: bool = False) -> tuple[Call[None], ...]:
        """Pause, take over the model folder `weights`, go on; the last is asked of a server that failed as well.

        With `releases`, those of `release` come first, whether they were asked before or not.
        """

    @abstractmethod
    def check(self, params: SamplingParams) -> None:
        """Raises UserError for what this server does otherwise than asked."""

    def body(self, model: str, request: Request) -> bytes:
        """The body of the call for one completion.

        It names all that the server would otherwise take from the model's generation_config.json: Qwen2.5's has a top_k
        of 20, which the log-probabilities do not show.
        """
        params = request.params
        common = {
            "model": model,
            "prompt": [int(token) for token in request.prompt],
            "n": 1,
            "seed": request.seed_within(self.max_seed),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": 0.0,
            "repetition_penalty": params.repetition_penalty,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": list(params.stop_token_ids),
            "return_token_ids": True,
            **({"logprobs": 1} if params.logprobs else {}),
        }
        return json.dumps({**common, **self.fields(params)}).encode()

    def read(self, content: bytes, params: SamplingParams) -> Completion:
        """The completion in an answer: up to its first stop token, or its first `max_new_tokens`.

        It has the version of the weights if the server says which. Raises AnswerError for one that is malformed,
        broken off, or has not one log-probability a token.
        """
        answer = parse_answer(_Completion, content)
        (choice,) = answer.choices
        tokens, logprobs = getattr(choice, self.ids), choice.logprobs.token_logprobs if choice.logprobs else []
        if choice.finish_reason not in ("stop", "length"):
            raise AnswerError(f"the completion ended with finish_reason {choice.finish_reason!r}")
        if tokens is None or (params.logprobs and len(tokens) != len(logprobs)):
            n_tokens = "no" if tokens is None else len(tokens)
            raise AnswerError(f"the completion has {n_tokens} token ids and {len(logprobs)} log-probabilities")
        logprobs = logprobs if params.logprobs else []
        end = next((position for position, token in enumerate(tokens) if token in params.stop_token_ids), len(tokens))
        n_sampled = min(end + 1, params.max_new_tokens, len(tokens))
        reason = "stop" if end < n_sampled else "length"
        if reason == "length" and n_sampled < params.max_new_tokens:
            raise AnswerError(f"the completion ended after {n_sampled} tokens without a stop token")
        if min(logprobs[:n_sampled], default=0.0) < _IMPOSSIBLE:
            raise AnswerError("the completion holds a token that its own log-probability calls impossible")
        return Completion(tokens[:n_sampled], logprobs[:n_sampled], reason, answer.weight_version)


class FastDeployApi(RolloutApi):
    """FastDeploy from 2.6 on, with FD_ENABLE_V1_UPDATE_WEIGHTS=1, --dynamic-load-weight and ipc_snapshot.

    Its own `/v1/update_weights` reads no files: it receives tensors through the package `checkpoint_transfer`.
    """

    name = "fastdeploy"
    max_seed = 922337203685477580
    ids = "completion_token_ids"

    def check(self, params: SamplingParams) -> None:
        """Minimum lengths hold for the checkpoint's own end token alone."""
        if params.min_new_tokens:
            raise UserError(
                f"min_new_tokens {params.min_new_tokens} has no effect in FastDeploy, which suppresses no stop tokens "
                "but the checkpoint's own: set min_dec_len: 0"
            )

    def fields(self, params: SamplingParams) -> dict[str, Any]:
        """Log-probabilities are asked for at the temperature; 0 would be taken for 1."""
        greedy = {"temperature": 1.0, "top_p": 0.0} if params.temperature == 0 else {}
        return {
            **greedy,
            "max_tokens": params.max_new_tokens + 1,  # the last token allowed is replaced by an end token
            "min_tokens": 0,  # its default is 1
            "temp_scaled_logprobs": params.logprobs and params.temperature != 0,
        }

    def release(self) -> tuple[Call[None], ...]:
        """Each tag has a request of its own: asked for both, a server that has done the one leaves out the other."""
        return (*self._dropped(), _step("to drop its KV cache", "/v1/sleep?tags=kv_cache"))

    def steps(self, weights: Path, *, releases: bool = False) -> tuple[Call[None], ...]:
        """Weights are dropped, then read again from the server's own model folder, and the engine goes on by itself.

        Each may be asked again: a server leaves out what it has done. Pausing empties the prefix cache. CUDA graphs are
        captured as weights return, which takes the KV cache.
        """
        before = (*self.release(), _step("to make a KV cache", "/v1/wakeup?tags=kv_cache"))
        return (
            *(before if releases else self._dropped()),
            _step("to take over weights", "/v1/wakeup?tags=weight"),
        )

    def _dropped(self) -> tuple[Call[None], ...]:
        return _step("to pause", "/v1/pause"), _step("to drop its weights", "/v1/sleep?tags=weight")


class VllmApi(RolloutApi):
    """vLLM from 0.16 on, started with VLLM_SERVER_DEV_MODE=1, which opens its routes for pausing and weights."""

    name = "vllm"
    max_seed = 2**63 - 1
    ids = "token_ids"

    def check(self, params: SamplingParams) -> None:
        """Its log-probabilities are those before the temperature, unless it was started otherwise."""
        if params.logprobs and params.temperature not in (0, 1):
            raise UserError(
                f"temperature {params.temperature:g} is not supported with vLLM, whose log-probabilities are those at "
                "temperature 1: set temperature: 1"
            )

    def fields(self, params: SamplingParams) -> dict[str, Any]:
        """Only the tokens in stop_token_ids end a completion."""
        return {"max_tokens": params.max_new_tokens, "min_tokens": params.min_new_tokens, "ignore_eos": True}

    def release(self) -> tuple[Call[None], ...]:
        """Level 2 keeps no copy of the weights."""
        return (_step("to drop weights and KV cache", "/sleep?level=2&mode=abort"),)

    def steps(self, weights: Path, *, releases: bool = False) -> tuple[Call[None], ...]:
        """Pausing empties the prefix cache, whose values are of the old weights; so does dropping them."""
        update = {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}}
        reload = _step("to take over weights", "/collective_rpc", update)
        if not releases:
            return _step("to pause", "/pause?mode=abort&clear_cache=true"), reload, _step("to go on", "/resume")
        memory = _step("to make room for weights", "/wake_up?tags=weights")
        return *self.release(), memory, reload, _step("to go on", "/wake_up?tags=kv_cache")


ROLLOUT_APIS: dict[str, RolloutApi] = {api.name: api for api in (FastDeployApi(), VllmApi())}
