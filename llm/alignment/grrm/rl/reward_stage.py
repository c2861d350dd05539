"""The reward stage: groups go to the judge whole, before any balancing, and come back with rewards or reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from grrm.judges.interface import Judge
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapingConfig, shape_rewards
from grrm.rl.rollout import RolledGroup


class Rewarder(Protocol):
    """Anything that gives groups their rewards."""

    def reward(self, groups: Sequence[RolledGroup]) -> None:
        """Fill `shaped` of every group, and `verdict` where there is one."""
        ...


@dataclass(slots=True)
class RewardStage:
    """Judges groups and shapes their scores into rewards.

    `judge` is a `RewardClient` or an in-process judge. Raises whatever the client raises when no verdict can be had
    (`RewardServerError`) and `RewardFailure` when the failure policy says abort; it never invents a reward.
    """

    judge: Judge
    shaping: ShapingConfig
    policy: FailurePolicy

    def reward(self, groups: Sequence[RolledGroup]) -> None:
        """Fill `verdict` and `shaped` of every group."""
        verdicts = self.judge.judge([rolled.group for rolled in groups])
        if len(verdicts) != len(groups):
            raise ValueError(f"the judge answered {len(verdicts)} verdicts for {len(groups)} groups")
        for rolled, verdict in zip(groups, verdicts, strict=True):
            rolled.verdict = verdict
            rolled.shaped = shape_rewards(rolled.group, verdict, self.shaping, self.policy)
