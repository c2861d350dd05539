"""A stand-in for PaddlePaddle's FastDeploy 2 on a CPU: its offline interface, with the traps of the real one.

Names and defaults are those of its documentation and of its 2.x sources; a keyword that it does not have is a TypeError
here too. Weights are read and run by PaddleNLP, one forward pass a token. Put the folder above this one on `sys.path`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_EPSILON = 1e-5

# The real one does so on import, and writes to stdout while it starts.
for _handler in logging.getLogger().handlers[:]:
    if isinstance(_handler, logging.StreamHandler):
        logging.getLogger().removeHandler(_handler)
print("fastdeploy is being imported")


class EngineError(Exception):
    """FastDeploy's own error."""


@dataclass
class SamplingParams:
    n: int = 1
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_seqs_len: int | None = None
    max_tokens: int | None = None
    reasoning_max_tokens: int | None = None
    min_tokens: int = 1
    logprobs: int | None = None
    bad_words: list[str] | None = None

    def __post_init__(self) -> None:
        if self.seed is None:
            self.seed = int.from_bytes(os.urandom(7), "big")
        assert 0 <= self.seed <= 922337203685477580
        assert self.top_p is None or 0 <= self.top_p <= 1
        assert self.max_tokens is None or self.min_tokens <= self.max_tokens >= 1


@dataclass
class CompletionOutput:
    index: int
    send_idx: int
    token_ids: list[int]
    text: str | None = None


@dataclass
class RequestOutput:
    request_id: str
    prompt: Any
    prompt_token_ids: list[int]
    outputs: CompletionOutput
    finished: bool = True
    error_code: int = 200
    error_msg: str | None = None


@dataclass
class EngineArgs:
    model: str
    tokenizer: str | None = None
    enable_logprob: bool = False
    max_model_len: int = 2048
    max_num_seqs: int = 8
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    quantization: str | None = None
    enable_prefix_caching: bool = False
    engine_worker_queue_port: int = 8002


class LLM:
    """`heeds_stop_token_ids` is false in releases that pass them on in a form their workers skip."""

    heeds_stop_token_ids = True
    latest: EngineArgs | None = None  # of the engine that was started last

    def __init__(
        self,
        model: str,
        revision: str | None = "master",
        tokenizer: str | None = None,
        enable_logprob: bool = False,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> None:
        from grrm.models.checkpoint import load_causal_lm

        self.args = LLM.latest = EngineArgs(model=model, tokenizer=tokenizer, enable_logprob=enable_logprob, **kwargs)
        print("Loading Weights: 100%")
        self.model = load_causal_lm(Path(model), dtype="float32")
        self.end_ids = end_ids_of(Path(model))

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | list[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        count = 1 if isinstance(sampling_params, SamplingParams) else len(sampling_params)
        if isinstance(prompts[0], int):
            prompts = [prompts]
        if count != 1 and len(prompts) != count:
            raise ValueError("prompts and sampling_params must be the same length.")
        assert sampling_params[0].logprobs is None if count > 1 else sampling_params.logprobs is None
        if not use_tqdm:
            raise UnboundLocalError("num_requests")
        several = sampling_params if count > 1 else [sampling_params] * len(prompts)
        return [self.reply(i, prompt, one) for i, (prompt, one) in enumerate(zip(prompts, several, strict=True))]

    def reply(self, index: int, prompt: list[int], params: SamplingParams) -> RequestOutput:
        assert all(type(token) is int for token in prompt)
        prompt = prompt[: self.args.max_model_len - 1] if len(prompt) > self.args.max_model_len else prompt
        max_tokens = min(self.args.max_model_len - len(prompt), params.max_tokens or 8192)
        if len(prompt) + params.min_tokens >= self.args.max_model_len:
            raise EngineError("Input text is too long")
        return RequestOutput(
            str(index), prompt, prompt, CompletionOutput(index, 0, self._draw(prompt, params, max_tokens))
        )

    def _draw(self, prompt: list[int], params: SamplingParams, max_tokens: int) -> list[int]:
        rng, tokens = np.random.default_rng(params.seed), []
        end = self.end_ids[0] if self.end_ids else 0
        while True:
            token = _pick(self._logits(prompt + tokens), params, prompt + tokens, len(tokens), self.end_ids, rng)
            if len(tokens) + 1 >= max_tokens or token in self.end_ids:
                return [*tokens, end]  # whatever was drawn
            tokens.append(token)
            if self.heeds_stop_token_ids and token in (params.stop_token_ids or ()):
                return [*tokens, end]

    def _logits(self, tokens: Sequence[int]) -> np.ndarray:
        import paddle

        with paddle.no_grad():
            output = self.model(paddle.to_tensor([list(tokens)]))
        logits = output[0] if isinstance(output, tuple) else output
        return logits.numpy().reshape(len(tokens), -1)[-1].astype(np.float64)


def _pick(
    logits: np.ndarray, params: SamplingParams, seen: list[int], n_drawn: int, end_ids: list[int], rng: Any
) -> int:
    temperature = 1.0 if params.temperature is None or params.temperature < _EPSILON else params.temperature
    top_p = max(0.7 if params.top_p is None else params.top_p, _EPSILON)
    for token in set(seen) if params.repetition_penalty is not None else ():
        penalty = params.repetition_penalty
        logits[token] *= penalty if logits[token] < 0 else 1 / penalty
    if n_drawn < params.min_tokens:
        logits[end_ids] = -np.inf
    probabilities = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-probabilities, kind="stable")
    if params.top_k > 0 and os.environ.get("FD_SAMPLING_CLASS") == "rejection":
        order = order[: params.top_k]
    mass = np.cumsum(probabilities[order] / probabilities[order].sum())
    kept = order[: 1 + int(np.searchsorted(mass, top_p))]
    weights = probabilities[kept] / probabilities[kept].sum()
    return int(kept[min(int(np.searchsorted(np.cumsum(weights), rng.random())), len(kept) - 1)])


def end_ids_of(folder: Path) -> list[int]:
    if not (folder / "tokenizer_config.json").is_file():
        return []
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = settings["added_tokens_decoder"].items()
    return [int(token_id) for token_id, token in tokens if token["content"] == settings["eos_token"]]


def __getattr__(name: str) -> None:
    """Any other name is None, and said on stdout."""
    print(f"module fastdeploy has no attribute {name}")
