"""From scored groups to training rows: the advantages of a global batch, equal on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.advantages.interface import AdvantageInputs, FloatArray
from grrm.algorithms.advantages.moments import RunningMoments, length_neutral, normalize_advantages
from grrm.config import RLConfig
from grrm.rl.records import ModelOutputs, Row, Scored


def pad_right(rows: Sequence[Sequence[float] | NDArray[Any]], width: int) -> NDArray[Any]:
    """Right-pad rows with zeros to a float64 [R, width] array."""
    table_RT = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        table_RT[i, : len(row)] = row
    return table_RT


def group_advantages(
    groups: Sequence[Scored], config: RLConfig, moments: RunningMoments | None
) -> tuple[AdvantageInputs, FloatArray]:
    """The global table of a rollout and the advantages [R, T] by the rule of `config`.

    With `moments`, which are updated first, rewards are normalised by those of all rewards of the run.
    """
    inputs = advantage_inputs(
        groups,
        kl_coeff=config.kl_coeff,
        gamma=config.gamma,
        clip_range_score=config.clip_range_score,
        gae_lambda=config.gae_lambda,
        span_weight=config.span_weight,
    )
    if config.length_neutral_rewards:
        inputs = length_neutral(inputs)
    if moments is not None:
        moments.update(inputs.rewards_R)
        inputs = replace(inputs, rewards_R=moments.normalize(inputs.rewards_R))
    advantages_RT = ADVANTAGE_RULES[config.advantage_rule](inputs)
    return inputs, normalize_advantages(advantages_RT, inputs.valid_RT) if config.normalize_advantage else advantages_RT


def advantage_inputs(groups: Sequence[Scored], **settings: Any) -> AdvantageInputs:
    """The global table of a rollout, rows in canonical order: position of the prompt, then sample number.

    Rows without a reward carry NaN. KL terms (policy minus reference log-probability) are included when every group has
    both, values and severities when every group has them. `settings` are the other fields of `AdvantageInputs`.
    """
    rewards, judged, index, lengths, kl, values, severities = [], [], [], [], [], [], []
    for position, scored in enumerate(groups):
        rewards += [np.nan if reward is None else reward for reward in scored.shaped.rewards]
        judged += [score is not None for score in scored.shaped.judged]
        index += [position] * len(scored.rolled.token_ids)
        lengths += [len(tokens) for tokens in scored.rolled.token_ids]
        kl += kl_rows(scored.outputs) or []
        values += scored.outputs.values or []
        severities += scored.judged.severities or []
    width = max(lengths)
    return AdvantageInputs(
        rewards_R=np.asarray(rewards, dtype=np.float64),
        groups_R=np.asarray(index, dtype=np.int64),
        mask_RT=np.arange(width)[None, :] < np.asarray(lengths)[:, None],
        kl_RT=pad_right(kl, width) if len(kl) == len(rewards) else None,
        values_RT=pad_right(values, width) if len(values) == len(rewards) else None,
        severities_RT=pad_right(severities, width) if len(severities) == len(rewards) else None,
        judged_R=np.asarray(judged, dtype=np.bool_),
        **settings,
    )


def kl_rows(outputs: ModelOutputs) -> list[NDArray[Any]] | None:
    """Policy minus reference log-probability of every token of every sample; None where either is not known."""
    if outputs.policy_logprobs is None or outputs.ref_logprobs is None:
        return None
    pairs = zip(outputs.policy_logprobs, outputs.ref_logprobs, strict=True)
    return [policy.astype(np.float64) - ref for policy, ref in pairs]


def training_rows(
    groups: Sequence[Scored], advantages_RT: NDArray[Any], returns_RT: NDArray[Any] | None = None
) -> list[list[Row]]:
    """Rows per group, in the order of `groups`; a row without a reward keeps its place with an empty mask.

    `returns_RT` are the critic's targets, if there is one.
    """
    returns = None if returns_RT is None else per_sample(groups, returns_RT)
    rows: list[list[Row]] = []
    for position, (scored, advantages) in enumerate(zip(groups, per_sample(groups, advantages_RT), strict=True)):
        rolled, outputs, rewards = scored.rolled, scored.outputs, scored.shaped.rewards
        members = [
            Row(
                prompt_ids=rolled.item.prompt_ids,
                token_ids=tokens,
                advantages_T=advantages[i],
                mask_T=np.full(len(tokens), float(rewards[i] is not None)),
                engine_logprobs_T=rolled.engine_logprobs[i],
                old_logprobs_T=None if outputs.policy_logprobs is None else outputs.policy_logprobs[i],
                ref_logprobs_T=None if outputs.ref_logprobs is None else outputs.ref_logprobs[i],
                values_T=None if outputs.values is None else outputs.values[i],
                returns_T=None if returns is None else returns[position][i],
            )
            for i, tokens in enumerate(rolled.token_ids)
        ]
        rows.append(members)
    return rows


def per_sample(groups: Sequence[Scored], table_RT: NDArray[Any]) -> list[list[NDArray[Any]]]:
    """The rows of a global table by group and sample, without padding."""
    rows_RT = iter(table_RT)
    return [[next(rows_RT)[: len(tokens)] for tokens in scored.rolled.token_ids] for scored in groups]


def row_advantages(groups: Sequence[Scored], advantages_RT: NDArray[Any]) -> list[NDArray[Any]]:
    """Mean advantage of each sample, group by group: what the dump and the console show ([G] per group)."""
    return [np.asarray([row_T.mean() for row_T in rows]) for rows in per_sample(groups, advantages_RT)]


def mean_reward(groups: Sequence[Scored]) -> tuple[float, float]:
    """Mean and standard deviation over all rows that have a reward; NaN, NaN when none has."""
    rewards = [reward for scored in groups for reward in scored.shaped.rewards if reward is not None]
    return (float(np.mean(rewards)), float(np.std(rewards))) if rewards else (float("nan"), float("nan"))
