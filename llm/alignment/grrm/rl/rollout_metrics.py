"""What one rollout looks like in numbers, computed from the global batch: equal on every rank without a collective."""

from __future__ import annotations

import numpy as np

from grrm.rewards.failure_policy import count_statuses
from grrm.rewards.group_filter import zero_variance_metrics
from grrm.rl.experience import mean_reward
from grrm.rl.experience_maker import Experience


def rollout_metrics(experience: Experience) -> dict[str, float]:
    """Rewards, scores, lengths, statuses and zero-variance groups of one rollout; NaN where nothing was scored."""
    groups = experience.groups
    reward_mean, reward_std = mean_reward(groups)
    scores = [s for rolled in groups if rolled.verdict for s in rolled.verdict.scores if s is not None]
    lengths = [len(tokens) for rolled in groups for tokens in rolled.token_ids]
    reasons = [reason for rolled in groups for reason in rolled.finish_reasons]
    statuses = count_statuses([rolled.verdict for rolled in groups if rolled.verdict])
    n_rows = max(sum(statuses.values()), 1)
    return {
        "reward_mean": reward_mean,
        "reward_std": reward_std,
        "score_mean": float(np.mean(scores)) if scores else float("nan"),
        "response_length_mean": float(np.mean(lengths)),
        "response_length_max": float(np.max(lengths)),
        "frac_truncated": reasons.count("length") / len(reasons),
        "frac_unscored": 1.0 - len(scores) / n_rows,
        "generation_batches": float(experience.generations),
        **zero_variance_metrics([rolled.shaped for rolled in groups if rolled.shaped]),
        **{f"status/{name}": count / n_rows for name, count in statuses.items() if count},
        **{f"seconds_{phase}": seconds for phase, seconds in experience.seconds.items()},
    }
