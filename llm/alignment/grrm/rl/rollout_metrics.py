"""What one rollout looks like in numbers, computed from the global batch: equal on every rank without a collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from grrm.rewards.group_filter import zero_variance_metrics
from grrm.rl.experience import mean_reward
from grrm.rl.experience_maker import Experience
from grrm.rl.rollout import RolledGroup


def rollout_metrics(experience: Experience) -> dict[str, float]:
    """Rewards, scores, measures, lengths, statuses and zero-variance groups; NaN where nothing was scored.

    A server of the row protocol gives rewards and no verdicts: `score_mean` is NaN then, and every row is scored.
    Statuses and zero-variance groups are counted over all that was generated, the rest over what is trained on:
    dynamic sampling leaves out the groups without a signal.
    """
    groups = experience.groups
    reward_mean, reward_std = mean_reward(groups)
    scores = [s for rolled in groups if rolled.verdict for s in rolled.verdict.scores if s is not None]
    lengths = [len(tokens) for rolled in groups for tokens in rolled.token_ids]
    reasons = [reason for rolled in groups for reason in rolled.finish_reasons]
    judged = experience.judged or [rolled.shaped for rolled in groups if rolled.shaped]
    statuses = Counter(status for shaped in judged for status in shaped.statuses)
    n_rows = max(sum(statuses.values()), 1)
    n_scored = sum(count for status, count in statuses.items() if status.is_scored)
    return {
        "reward_mean": reward_mean,
        "reward_std": reward_std,
        "score_mean": _mean(scores),
        **_measure_means(groups),
        "response_length_mean": float(np.mean(lengths)),
        "response_length_max": float(np.max(lengths)),
        "frac_truncated": reasons.count("length") / len(reasons),
        "frac_unscored": 1.0 - n_scored / n_rows,
        "generation_batches": float(experience.generations),
        **zero_variance_metrics(judged),
        **{f"status/{status.value}": count / n_rows for status, count in sorted(statuses.items())},
        **{f"seconds_{phase}": seconds for phase, seconds in experience.seconds.items()},
    }


def _measure_means(groups: Sequence[RolledGroup]) -> dict[str, float]:
    """`NAME_mean` of every measure that the reward stage took, over the samples that have it."""
    names = sorted({name for rolled in groups for name in rolled.measures})
    return {
        f"{name}_mean": _mean([v for rolled in groups for v in rolled.measures.get(name, ()) if v is not None])
        for name in names
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
