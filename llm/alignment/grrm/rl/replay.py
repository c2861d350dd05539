"""Recomputes rewards and advantages of a run from its dump of rollouts, with the functions used in training.

Nothing is sampled and no model is needed. Verdicts are taken from the dump; rules are applied to the responses again,
and mixtures recomputed. Rewards of the row protocol are taken as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.algorithms.advantages.moments import RunningMoments
from grrm.config import RLConfig
from grrm.data.dataset import PromptItem
from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapedRewards, ShapingConfig, shape_rewards
from grrm.rl.experience import group_advantages, row_advantages
from grrm.rl.records import Judged, ModelOutputs, Rolled, Scored
from grrm.rl.reward_stage import RuleRewardStage, reward, shaping_config
from grrm.tracking.rollout_dump import ROLLOUTS, group_of, read_arguments, read_rollouts, verdict_of

Number = float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A mismatch between the dump and the recomputed value."""

    group_id: str
    candidate: str
    name: str
    dumped: Number
    replayed: Number


@dataclass(slots=True)
class ReplayedStep:
    """One step: number of training groups, number of compared values, and the mismatches."""

    step: int
    n_groups: int
    n_compared: int = 0
    differences: list[Difference] = field(default_factory=list)


def dumped_steps(run: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The dumped records of a run, step by step, as all of them may exceed memory.

    Raises UserError for a folder without records.
    """
    step = 0
    for step, group in groupby(read_rollouts(Path(run) / ROLLOUTS), key=lambda record: int(record["step"])):
        yield step, list(group)
    if not step:
        raise UserError(f"'{run}' has no rollouts: name the output_dir of an RL run with dump_rollouts: true")


def replay(run: Path, only: int | None = None) -> Iterator[ReplayedStep]:
    """Every training step, or `only` one, with rewards and advantages compared bit for bit.

    Raises UserError for a run without dump or settings, a step that is not there, and a running normalisation whose
    first steps are missing.
    """
    run, first, last = Path(run), 0, 0
    settings, moments = read_arguments(run / ROLLOUTS), RunningMoments()
    for step, records in dumped_steps(run):
        first, last = first or step, step
        config = _config_at(settings, step, run)
        trained = [record for record in records if record.get("use", "trained") == "trained"]
        if not trained or (only is not None and step != only and not config.normalize_reward):
            continue
        if config.normalize_reward and first > 1:
            raise UserError(f"'{run}' has no rollouts of its first steps, which its running normalisation needs")
        replayed = _replayed(step, trained, config, moments)
        if only in (None, step):
            yield replayed
        if step == only:
            return
    if only is not None and only != last:
        raise UserError(f"'{run}' has no rollout that step {only} began with: its rollouts are of {first} to {last}")


def _replayed(
    step: int, records: Sequence[Mapping[str, Any]], config: RLConfig, moments: RunningMoments
) -> ReplayedStep:
    stage = shaping_config(config), FailurePolicy.from_mapping(config.failure_policy)
    groups = [_scored(record, position, config, *stage) for position, record in enumerate(records)]
    _, advantages_RT = group_advantages(groups, config, moments if config.normalize_reward else None)
    replayed = ReplayedStep(step, len(groups))
    for record, scored, advantages_G in zip(records, groups, row_advantages(groups, advantages_RT), strict=True):
        rewards_G = scored.shaped.rewards
        for candidate, number, advantage in zip(record["candidates"], rewards_G, advantages_G, strict=True):
            new = {"reward": number, "advantage": None if number is None else float(advantage)}
            replayed.n_compared += len(new)
            replayed.differences += [
                Difference(record["group_id"], candidate["id"], name, candidate[name], value)
                for name, value in new.items()
                if candidate[name] != value
            ]
    return replayed


def _scored(
    record: Mapping[str, Any], position: int, config: RLConfig, shaping: ShapingConfig, policy: FailurePolicy
) -> Scored:
    rolled, outputs = _rolled(record, position), _outputs(record)
    if config.use_rule_reward:
        return replace(*reward(RuleRewardStage(config.rule_reward, shaping, policy), [rolled]), outputs=outputs)
    if record["verdict"] is None:
        return Scored(Judged(rolled), _as_sent(record), outputs)
    verdict = verdict_of(record)
    judged = Judged(rolled, verdict, severities=_per_token(record, "severities"))
    return Scored(judged, shape_rewards(rolled.group, verdict, shaping, policy), outputs)


def _as_sent(record: Mapping[str, Any]) -> ShapedRewards:
    rewards = tuple(candidate["reward"] for candidate in record["candidates"])
    statuses = tuple(Status(candidate["status"]) for candidate in record["candidates"])
    return ShapedRewards(rewards, rewards, statuses)


def _rolled(record: Mapping[str, Any], position: int) -> Rolled:
    """The group, reduced to the inputs of rewards and advantages."""
    group = group_of(record)
    token_ids = [[0] * candidate.n_tokens for candidate in group.candidates]
    return Rolled(position, PromptItem(position, [], "", group.task), group, token_ids, [], [])


def _outputs(record: Mapping[str, Any]) -> ModelOutputs:
    """The KL terms, in place of the policy's log-probs beside a reference of zeros, and the critic's values."""
    kl = _per_token(record, "kl")
    return ModelOutputs(kl, kl and [np.zeros(len(kl_T)) for kl_T in kl], _per_token(record, "values"))


def _per_token(record: Mapping[str, Any], name: str) -> list[NDArray[Any]] | None:
    """A number per token of every candidate; None where one has none."""
    rows_GT = [candidate.get(name) for candidate in record["candidates"]]
    return None if None in rows_GT else [np.asarray(row_T, dtype=np.float64) for row_T in rows_GT]


def _config_at(settings: Mapping[int, Mapping[str, Any]], step: int, run: Path) -> RLConfig:
    """The settings used in `step`."""
    first = max((start for start in settings if start <= step), default=None)
    if first is None:
        raise UserError(f"'{run}' does not say what settings step {step} was made with: it is of an earlier version")
    values = {name: value for name, value in settings[first].items() if name in RLConfig.model_fields}
    return RLConfig.model_construct(**values)
