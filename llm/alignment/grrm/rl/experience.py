"""From judged groups to training rows: a canonical global table, equal on every rank, then each rank's share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.algorithms.advantages.interface import AdvantageInputs
from grrm.rl.rollout import RolledGroup


@dataclass(frozen=True, slots=True)
class Row:
    """One sample ready for the loss; arrays are indexed by response token (T).

    `values_T` and the `returns_T` that they should have been are those of the critic, if there is one.
    """

    prompt_ids: list[int]
    token_ids: list[int]
    advantages_T: NDArray[Any]
    mask_T: NDArray[Any]
    engine_logprobs_T: NDArray[Any]
    old_logprobs_T: NDArray[Any] | None
    ref_logprobs_T: NDArray[Any] | None
    values_T: NDArray[Any] | None = None
    returns_T: NDArray[Any] | None = None

    @property
    def length(self) -> int:
        """Prompt and response tokens."""
        return len(self.prompt_ids) + len(self.token_ids)


def pad_right(rows: Sequence[Sequence[float] | NDArray[Any]], width: int) -> NDArray[Any]:
    """Right-pad rows with zeros to a float64 [R, width] array."""
    table_RT = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        table_RT[i, : len(row)] = row
    return table_RT


def advantage_inputs(
    groups: Sequence[RolledGroup],
    *,
    kl_coeff: float,
    gamma: float,
    clip_range_score: float | None,
    gae_lambda: float = 1.0,
) -> AdvantageInputs:
    """The global table of one rollout, rows in canonical order: position of the prompt, then sample number.

    Rows without a reward carry NaN. KL terms (policy minus reference log-probability) are included when every group has
    both, values when every group has them. Raises ValueError when a group has not been judged.
    """
    rewards, index, lengths, kl, values = [], [], [], [], []
    for position, rolled in enumerate(groups):
        if rolled.shaped is None:
            raise ValueError(f"group {rolled.group.group_id} reached the advantage stage without a verdict")
        rewards += [np.nan if reward is None else reward for reward in rolled.shaped.rewards]
        index += [position] * len(rolled.token_ids)
        lengths += [len(tokens) for tokens in rolled.token_ids]
        kl += kl_rows(rolled) or []
        values += rolled.values or []
    width = max(lengths)
    mask_RT = np.arange(width)[None, :] < np.asarray(lengths)[:, None]
    return AdvantageInputs(
        rewards_R=np.asarray(rewards, dtype=np.float64),
        groups_R=np.asarray(index, dtype=np.int64),
        mask_RT=mask_RT,
        kl_RT=pad_right(kl, width) if len(kl) == len(rewards) else None,
        kl_coeff=kl_coeff,
        gamma=gamma,
        clip_range_score=clip_range_score,
        values_RT=pad_right(values, width) if len(values) == len(rewards) else None,
        gae_lambda=gae_lambda,
    )


def kl_rows(rolled: RolledGroup) -> list[NDArray[Any]] | None:
    """Policy minus reference log-probability of every token of every sample; None where either is not known."""
    if rolled.policy_logprobs is None or rolled.ref_logprobs is None:
        return None
    pairs = zip(rolled.policy_logprobs, rolled.ref_logprobs, strict=True)
    return [policy.astype(np.float64) - ref for policy, ref in pairs]


def training_rows(
    groups: Sequence[RolledGroup], advantages_RT: NDArray[Any], returns_RT: NDArray[Any] | None = None
) -> list[list[Row]]:
    """Rows per group, in the order of `groups`; a row without a reward keeps its place with an empty mask.

    `returns_RT` are the critic's targets, if there is one.
    """
    rows: list[list[Row]] = []
    start = 0
    for rolled in groups:
        members = []
        for i, tokens in enumerate(rolled.token_ids):
            has_reward = rolled.shaped is not None and rolled.shaped.rewards[i] is not None
            members.append(
                Row(
                    prompt_ids=rolled.prompt_ids,
                    token_ids=tokens,
                    advantages_T=advantages_RT[start + i, : len(tokens)],
                    mask_T=np.full(len(tokens), float(has_reward)),
                    engine_logprobs_T=rolled.engine_logprobs[i],
                    old_logprobs_T=None if rolled.policy_logprobs is None else rolled.policy_logprobs[i],
                    ref_logprobs_T=None if rolled.ref_logprobs is None else rolled.ref_logprobs[i],
                    values_T=None if rolled.values is None else rolled.values[i],
                    returns_T=None if returns_RT is None else returns_RT[start + i, : len(tokens)],
                )
            )
        rows.append(members)
        start += len(rolled.token_ids)
    return rows


def mean_reward(groups: Sequence[RolledGroup]) -> tuple[float, float]:
    """Mean and standard deviation over all rows that have a reward; NaN, NaN when none has."""
    rewards = [reward for rolled in groups if rolled.shaped for reward in rolled.shaped.rewards if reward is not None]
    return (float(np.mean(rewards)), float(np.std(rewards))) if rewards else (float("nan"), float("nan"))


def row_advantages(groups: Sequence[RolledGroup], advantages_RT: NDArray[Any]) -> list[NDArray[Any]]:
    """Mean advantage of each sample, group by group: what the dump and the console show ([G] per group)."""
    means: list[NDArray[Any]] = []
    start = 0
    for rolled in groups:
        lengths = [len(tokens) for tokens in rolled.token_ids]
        rows = advantages_RT[start : start + len(lengths)]
        means.append(np.asarray([row[:length].mean() for row, length in zip(rows, lengths, strict=True)]))
        start += len(lengths)
    return means
