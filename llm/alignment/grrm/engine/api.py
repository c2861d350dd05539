"""The generation interface that rollouts, judges, ranking, translation and evaluation share, and its checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from grrm.engine.constraint import Constraint
from grrm.errors import UserError

LEAST_TEMPERATURE = 1.2e-38  # less is 0 in float32


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters of sampling; temperature 0, or below LEAST_TEMPERATURE, is greedy.

    Raises ValueError on impossible values.

    Completion i has its own random stream, keyed by (`seed`, `stream_ids[i]`) with the `stream_ids` of
    `Engine.generate`, so that it does not depend on the rest of the batch.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    repetition_penalty: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    logprobs: bool = True  # False leaves `Completion.logprobs` empty, which every engine can do
    top_logprobs: int = 0  # of each token, as many of the most probable alternatives
    prompt_logprobs: bool = False  # also those of the prompt's tokens; this and the penalties need the Paddle engine
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    constraint: Constraint | None = None  # also needs the Paddle engine

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(f"need 0 <= min_new_tokens <= max_new_tokens and max_new_tokens >= 1, got {self}")
        if self.top_logprobs < 0:
            raise ValueError(f"need top_logprobs >= 0, got {self}")
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0 or self.repetition_penalty <= 0:
            raise ValueError(f"need temperature >= 0, 0 < top_p <= 1, top_k >= 0, repetition_penalty > 0, got {self}")
        if self.temperature < LEAST_TEMPERATURE:
            object.__setattr__(self, "temperature", 0.0)

    @property
    def counts_tokens(self) -> bool:
        """True if a token's logit depends on how often the completion has it already."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0


UNFOLLOWED = "constraint"
TopTokens: TypeAlias = list[tuple[int, float]]  # token ids and their log-probabilities


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of a prompt's tokens from the second on, as `Completion` has them of its tokens."""

    logprobs: list[float]
    top_logprobs: list[TopTokens]  # empty if `SamplingParams.top_logprobs` is 0


@dataclass(frozen=True, slots=True)
class Completion:
    """Generated tokens, including a sampled stop token.

    `logprobs[t]` is log pi(token_t) of the policy at `temperature` (logits divided by temperature when it is above
    zero) BEFORE top-k, top-p, penalties and min-length masking: the sampling-independent policy. It is empty
    if `SamplingParams.logprobs` is false.

    With a `SamplingParams.constraint` the policy is that of the tokens which it allows, as vLLM reports it.

    `weight_version` is the version of the trainer's weights that sampled it, where the engine has copies of them.
    `top_logprobs[t]` are the `SamplingParams.top_logprobs` most probable tokens at position t, best first, with their
    log-probabilities of the same kind. `prompt_scores` are there if `SamplingParams.prompt_logprobs` is true.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str  # "stop" or "length"; UNFOLLOWED where the constraint became too complex
    weight_version: int | None = None
    top_logprobs: list[TopTokens] = field(default_factory=list)
    prompt_scores: PromptScores | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, how it is to be continued, and the id of the random stream to draw with."""

    prompt: Sequence[int]
    params: SamplingParams
    stream_id: int = 0

    def seed_within(self, limit: int) -> int:
        """The seed for an engine with random numbers of its own: of `params.seed` and the stream, `limit` at most."""
        (number,) = np.random.SeedSequence([self.params.seed, self.stream_id]).generate_state(1, np.uint64)
        return int(number) % (limit + 1)


class Progress(NamedTuple):
    """Tokens of a completion under way, with what a Completion has of them and of its prompt."""

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[TopTokens]
    prompt_scores: PromptScores | None


class Session(Protocol):
    """Requests that are generated together, one token a step; others may join between steps. Not thread-safe."""

    @property
    def max_len(self) -> int:
        """The room for a prompt and its completion together: a completion ends there at the latest."""

    @property
    def n_free(self) -> int:
        """Number of requests that could start at the next step if their prompts are short."""

    def add(self, requests: Mapping[int, Request]) -> None:
        """Requests to run, by numbers that no other has. Their prompts have passed `check_requests`."""

    def cancel(self, number: int) -> None:
        """Forget a request; one that has ended or was never there is no mistake."""

    def generated(self, number: int, start: int = 0) -> Progress:
        """The tokens that a running request has from the `start`-th on."""

    def step(self, only: Set[int] | None = None) -> list[tuple[int, Completion]]:
        """One more token for every request that runs, or for `only` these if any runs; returns those that ended."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Use of the cache by a `generate`: bytes, concurrent sequences at most, preemptions.

    `full_length` is the number of sequences of the longest prompt and completion that fit.
    """

    bytes: int
    full_length: int
    max_running: int
    n_preempted: int

    def __str__(self) -> str:
        """The line that a run shows."""
        return (
            f"up to {self.max_running} sequences at a time; {self.bytes / 2**30:.3g} GiB of keys and values, room for "
            f"{self.full_length} of full length"
        )


OnFinished: TypeAlias = Callable[[int, Completion], None]


class Engine(ABC):
    """Generates token sequences from prompts. A back end implements `_generate`, and overrides what else it needs.

    With `is_remote` it generates in other processes, so that this one can train in the meantime. With `is_collective`
    the tensor ranks generate one batch, so a rank without prompts must call `generate` too.
    """

    is_remote: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False
    cache_use: CacheUse | None = None  # statistics of the last `generate`, if the back end has them

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt that leaves room for one token; None if only the back end knows."""
        return None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: OnFinished | None = None,
    ) -> list[Completion]:
        """One completion per prompt, order kept. Equal consecutive prompts (a group's samples) may share their prefill.

        Args:
            prompts: token ids.
            params: how all of them are sampled.
            stream_ids: ids of their random streams, by default 0, 1, 2, …
            on_finished: called with index and completion as each one ends.

        Raises:
            UserError: for params or a prompt that the back end cannot serve.
            ValueError: for another number of `stream_ids` than of `prompts`.
        """
        streams = range(len(prompts)) if stream_ids is None else stream_ids
        if len(streams) != len(prompts):
            raise ValueError(f"{len(streams)} stream_ids for {len(prompts)} prompts")
        requests = [Request(prompt, params, int(stream)) for prompt, stream in zip(prompts, streams, strict=True)]
        return self._generate(requests, on_finished or (lambda index, completion: None))

    @abstractmethod
    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """One completion per request, order kept; calls `on_finished` as each one ends."""

    def update_weights(self, version: int = 0) -> None:  # noqa: B027 - these three are optional
        """Take over the trainer's current weights, those of step `version`; a no-op where the storage is shared."""

    def sleep(self) -> None:  # noqa: B027
        """Release the memory that is needed only to generate, until `wake`."""

    def wake(self) -> None:  # noqa: B027
        """Undo `sleep`."""


def check_widely_served(params: SamplingParams, server: str) -> None:
    """Raises UserError for params that only the Paddle engine supports; the message begins with the name `server`."""
    special = {
        "prompt_logprobs": params.prompt_logprobs,
        "top_logprobs": params.top_logprobs > 0,
        "frequency_penalty and presence_penalty": params.counts_tokens,
        "a constraint": params.constraint is not None,
    }
    for names, is_needed in special.items():
        if is_needed:
            raise UserError(f"{server} is not asked for {names}: leave them out, or use the Paddle engine")


def check_requests(requests: Sequence[Request], max_prompt_tokens: int, vocab_size: int, limit: str) -> None:
    """Raises UserError for a prompt that is empty or too long, and for a token id outside the vocabulary.

    `limit` says what `max_prompt_tokens` follows from, such as "model's max_position_embeddings of 64".
    """
    for index, prompt in enumerate(request.prompt for request in requests):
        if len(prompt) == 0:
            raise UserError(f"Prompt {index} is empty: give it at least one token (a BOS or chat template).")
        if len(prompt) > max_prompt_tokens:
            raise UserError(
                f"Prompt {index} has {len(prompt)} tokens, which leaves no room in the {limit}: shorten or filter it."
            )
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            raise UserError(
                f"Prompt {index} holds a token id outside the model's vocabulary of {vocab_size}: "
                "use the tokenizer that belongs to the model."
            )
    for stops in dict.fromkeys(request.params.stop_token_ids for request in requests):
        if any(not 0 <= stop < vocab_size for stop in stops):
            raise UserError(
                f"Stop token ids {stops} do not all lie in the model's vocabulary of {vocab_size}: "
                "use the tokenizer that belongs to the model."
            )
