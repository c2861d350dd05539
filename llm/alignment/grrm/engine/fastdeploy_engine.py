"""The FastDeploy back end: PaddlePaddle's serving engine, in process through its offline `LLM`.

Written against FastDeploy 2.x (docs/offline_inference.md, entrypoints/llm.py, engine/sampling_params.py and what its
workers do with them); the PyPI project of that name is another one. Where a parameter does something else than its
name says, a comment beside the workaround says what.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grrm.engine.api import (
    Completion,
    Engine,
    OnFinished,
    Request,
    SamplingParams,
    check_requests,
    check_widely_served,
)
from grrm.errors import UserError
from grrm.judges.deadline import in_thread

INSTALL = (
    "install paddlepaddle-gpu and fastdeploy-gpu from PaddlePaddle's own index (docs/use.md), never `fastdeploy` from "
    "PyPI, which is another project"
)
_MAX_SEED = 922337203685477580  # FastDeploy's bound, inclusive
_LOGS = "see its logs in the folder log (FD_LOG_DIR)"
_OK = 200  # `RequestOutput.error_code` of a request that went well
_CANNOT_START = (OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError, AssertionError, ImportError)


def check_installed() -> None:
    """Raises UserError unless PaddlePaddle's FastDeploy is what `import fastdeploy` would find; imports nothing."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("fastdeploy")  # PaddlePaddle's are called fastdeploy-gpu, fastdeploy-xpu, …
        raise UserError(
            f"the installed package fastdeploy {version} is not PaddlePaddle's FastDeploy: run `pip uninstall "
            f"fastdeploy`, then {INSTALL}."
        )
    if find_spec("fastdeploy") is None:
        raise UserError(f"FastDeploy is not installed: {INSTALL}; or use the backend paddle.")


class FastDeployEngine(Engine):
    """An engine over a running `fastdeploy.LLM`, whose worker processes end with this process.

    It serves a checkpoint that does not change: `update_weights` raises UserError. So do log-probabilities, which
    FastDeploy reports for the likeliest tokens, not reliably for the sampled one. A prompt and its completion together
    have at most `max_model_len` - 1 tokens.

    A call returns when all its completions have ended, and calls `on_finished` for all of them then. With `deadline_s`
    a call that takes longer raises UserError, and so do all later ones, since FastDeploy cannot be stopped; None sets
    no limit.

    Every request carries a seed from (`params.seed`, its stream id), but by FastDeploy's sources a GPU samples a whole
    batch with the seed of one of its requests: sampled replies then depend on the batch. Greedy ones do not, but for
    rounding.
    """

    def __init__(
        self, llm: Any, request_type: Any, *, max_model_len: int, vocab_size: int, deadline_s: float | None = None
    ) -> None:
        self._llm, self._request_type = llm, request_type
        self._max_model_len, self._vocab_size = max_model_len, vocab_size
        self._deadline_s, self._missed_deadline = deadline_s, False

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        vocab_size: int,
        max_positions: int,
        max_num_seqs: int = 256,
        deadline_s: float | None = None,
        options: Mapping[str, object] | None = None,
    ) -> FastDeployEngine:
        """Start FastDeploy on the checkpoint in `directory`, whose model is of these sizes; takes minutes.

        `options` have passed `check_fastdeploy_options`. FastDeploy watches the workers it starts. Raises UserError
        where it cannot start.
        """
        checked = dict(options or {})
        length = checked.setdefault("max_model_len", max_positions)  # FastDeploy's own default is 2048
        if not isinstance(length, int) or length > max_positions:
            raise UserError(
                f"FastDeploy option 'max_model_len' is {length}, but the model in '{directory}' has {max_positions} "
                "positions (max_position_embeddings in its config.json): set at most that."
            )
        with _output_untouched():
            llm_type, request_type = _import_fastdeploy()
            try:
                llm = llm_type(model=str(directory), max_num_seqs=max_num_seqs, **checked)
            except _CANNOT_START as error:
                raise UserError(
                    f"FastDeploy cannot serve the model in '{directory}' ({_cause(error)}): {_LOGS}."
                ) from error
        return cls(llm, request_type, max_model_len=length, vocab_size=vocab_size, deadline_s=deadline_s)

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that leaves room for one token, and for the end token FastDeploy adds to every reply."""
        return self._max_model_len - 2

    def update_weights(self, version: int = 0) -> None:
        """Always refused with a UserError: FastDeploy's offline interface cannot take over new weights."""
        raise UserError(
            "FastDeploy's offline interface keeps the weights it was started with, so it cannot roll out a policy that "
            "is being trained: use the Paddle engine for rollouts."
        )

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """See `Engine.generate`. Raises UserError as well for a request that FastDeploy reports as failed, and for a
        call past the deadline.
        """
        for params in dict.fromkeys(request.params for request in requests):
            _check_params(params)
        limit = f"max_model_len of {self._max_model_len}, of which FastDeploy needs two tokens"
        check_requests(requests, self.max_prompt_tokens, self._vocab_size, limit)
        if not requests:
            return []
        max_tokens = [
            min(request.params.max_new_tokens, self._max_model_len - 1 - len(request.prompt)) for request in requests
        ]
        prompts = [[int(token) for token in request.prompt] for request in requests]
        outputs = self._answers(prompts, list(map(self._request, requests, max_tokens)))
        completions = [
            _completion(index, output, request.params, n)
            for index, (output, request, n) in enumerate(zip(outputs, requests, max_tokens, strict=True))
        ]
        for index, completion in enumerate(completions):
            on_finished(index, completion)
        return completions

    def _request(self, request: Request, max_tokens: int) -> Any:
        """FastDeploy's sampling parameters of one completion; None or a missing value would be the checkpoint's own."""
        params = request.params
        greedy = params.temperature == 0
        return self._request_type(
            # Its input processor turns temperature 0 into 1, in some releases with top_p unchanged; top_p 0 is greedy
            # in all of them.
            temperature=1.0 if greedy else params.temperature,
            top_p=0.0 if greedy else params.top_p,
            top_k=0 if greedy else params.top_k,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            # The last token allowed is replaced by an end token, whatever was drawn: ask for one more.
            max_tokens=max_tokens + 1,
            min_tokens=0,  # its default is 1
            stop_token_ids=list(params.stop_token_ids) or None,
            seed=request.seed_within(_MAX_SEED),
        )

    def _answers(self, prompts: list[list[int]], requests: list[Any]) -> list[Any]:
        def call() -> list[Any]:
            # A list of one is mistaken for a single SamplingParams further in. The progress bar stays on: without it
            # `LLM.generate` fails.
            return list(self._llm.generate(prompts, requests if len(requests) > 1 else requests[0]))

        outputs = self._in_time(call)
        if len(outputs) != len(prompts):
            raise RuntimeError(f"FastDeploy answered {len(prompts)} prompts with {len(outputs)} outputs")
        return outputs

    def _in_time(self, call: Callable[[], list[Any]]) -> list[Any]:
        """Return the result of `call`, which runs in a daemon thread that can be abandoned: `LLM.generate` has no
        timeout.
        """
        if self._missed_deadline:
            raise UserError(
                "FastDeploy is still busy with an earlier call past its deadline: start this process again."
            )
        answer = in_thread("fastdeploy", call)
        try:
            return answer.result(self._deadline_s)
        except TimeoutError:
            if answer.done():  # FastDeploy itself raised TimeoutError
                raise
            self._missed_deadline = True
            raise UserError(
                f"FastDeploy did not answer within {self._deadline_s:g} s: {_LOGS}, or allow more with the deadline."
            ) from None


def _check_params(params: SamplingParams) -> None:
    check_widely_served(params, "FastDeploy")
    if params.logprobs:
        raise UserError(
            "FastDeploy does not reliably return the log-probability of the token it drew: use the Paddle engine where "
            "log-probabilities are needed, as in rollouts."
        )
    if params.min_new_tokens:
        raise UserError(
            f"min_new_tokens {params.min_new_tokens} has no effect in FastDeploy, which suppresses no stop tokens "
            "but the checkpoint's own: leave it out, or use the Paddle engine."
        )
    sampling_class = os.environ.get("FD_SAMPLING_CLASS", "base")
    if params.top_k and params.temperature > 0 and sampling_class.lower() != "rejection":
        raise UserError(
            f"top_k {params.top_k} has no effect in FastDeploy with FD_SAMPLING_CLASS={sampling_class}: set it to "
            "rejection before the start, or leave top_k out."
        )


def _completion(index: int, output: Any, params: SamplingParams, max_tokens: int) -> Completion:
    """The reply up to its first stop token, or its first `max_tokens`.

    What follows was not sampled as asked: FastDeploy adds an end token after a stop token, and releases that ignore
    `stop_token_ids` go on generating.
    """
    if output.error_code != _OK or output.error_msg:
        raise UserError(f"FastDeploy failed on prompt {index} ({output.error_code}: {output.error_msg}): {_LOGS}.")
    tokens = [int(token) for token in output.outputs.token_ids]
    sampled = tokens[:max_tokens]
    end = next((position for position, token in enumerate(sampled) if token in params.stop_token_ids), None)
    if end is not None:
        return Completion(sampled[: end + 1], [], "stop")
    return Completion(sampled, [], "length" if len(tokens) > max_tokens else "stop")


def _import_fastdeploy() -> tuple[Any, Any]:
    try:
        module = import_module("fastdeploy")
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(f"FastDeploy is installed but cannot be imported ({_cause(error)}): {INSTALL}.") from error
    classes = getattr(module, "LLM", None), getattr(module, "SamplingParams", None)
    if not all(isinstance(value, type) for value in classes):  # FastDeploy answers None for any name it does not have
        raise UserError(f"the module fastdeploy that is installed has no LLM, so it is not FastDeploy 2: {INSTALL}.")
    return classes


@contextlib.contextmanager
def _output_untouched() -> Iterator[None]:
    """Keep stdout and logging as they are: FastDeploy prints, and removes handlers from the root logger."""
    root, handlers = logging.getLogger(), logging.getLogger().handlers[:]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        for handler in handlers:
            if handler not in root.handlers:
                root.addHandler(handler)


def _cause(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
