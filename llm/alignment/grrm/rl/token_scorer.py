"""Scores of sampled tokens by the trainer's models: log-probs under policy and reference, values of the critic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from grrm.config import RLConfig
from grrm.models.token_scores import score_responses
from grrm.rl.records import ModelOutputs, Rolled

PerSample = list[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TokenScorer:
    """Computes the `ModelOutputs` of groups by those models that the algorithm needs; the others are None.

    `per_device_logprob_batch_size` rows per forward pass, in the order of the groups. Groups in the same pass are
    padded to the same width, so the last bits may depend on how groups are distributed over ranks.
    """

    policy: Any | None
    reference: Any | None
    values: Callable[[Sequence[Rolled]], list[PerSample]] | None
    pad_id: int
    config: RLConfig

    def __call__(self, groups: Sequence[Rolled]) -> list[ModelOutputs]:
        """Scores of every response of every group."""
        nothing: list[None] = [None] * len(groups)
        columns = (
            nothing if self.policy is None else self._logprobs(self.policy, groups),
            nothing if self.reference is None else self._logprobs(self.reference, groups),
            nothing if self.values is None else self.values(groups),
        )
        return [ModelOutputs(*outputs) for outputs in zip(*columns, strict=True)]

    def _logprobs(self, model: Any, groups: Sequence[Rolled]) -> list[PerSample]:
        scored = score_responses(
            model,
            *prompts_and_responses(groups),
            pad_id=self.pad_id,
            batch_size=self.config.per_device_logprob_batch_size,
            temperature=self.config.temperature,
            pack_tokens=self.config.pack_tokens,
        )
        return by_group(groups, scored)


def prompts_and_responses(groups: Sequence[Rolled]) -> tuple[list[list[int]], list[list[int]]]:
    """The prompt and the response of every sample, group after group."""
    prompts = [rolled.item.prompt_ids for rolled in groups for _ in rolled.token_ids]
    return prompts, [tokens for rolled in groups for tokens in rolled.token_ids]


def by_group(groups: Sequence[Rolled], scored: Sequence[NDArray[Any]]) -> list[PerSample]:
    """The arrays of all samples, split into those of each group."""
    samples = iter(scored)
    return [[next(samples) for _ in rolled.token_ids] for rolled in groups]
