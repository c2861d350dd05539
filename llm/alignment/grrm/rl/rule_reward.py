"""Rewards without a judge: a rule compares each response with the ground truth of its row. This trains judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grrm.gqm.groups import Group, Status, Verdict
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.ranking_accuracy import RankingReward, RankingRewardFunction
from grrm.rewards.rule_rewards import parts_of
from grrm.rewards.shaping import ShapingConfig, shape_rewards
from grrm.rl.rollout import RolledGroup


@dataclass(slots=True)
class RuleRewardStage:
    """Rewards by ranking accuracy (RLVR); the group's reference is the ground truth, the gold scores or ranking.

    A response that is no valid verdict has no score but the status UNPARSABLE_CANDIDATE, so that the failure policy
    decides what it gets: by default the fixed reward, which is 0 unless set, as in the reference. Of valid responses,
    the measure `ranking_reward` is the share of candidate pairs that they order as the ground truth does, and
    `score_reward` the credit for their scores, where the rule asks for either.
    """

    rule: RankingRewardFunction
    shaping: ShapingConfig
    policy: FailurePolicy

    def reward(self, groups: Sequence[RolledGroup]) -> None:
        """Fill `verdict`, `shaped` and `measures` of every group.

        Raises UserError for a ground truth that cannot be read, RewardFailure when the failure policy says abort.
        """
        for rolled in groups:
            ground_truth = _ground_truth(rolled.group)
            found = [self.rule(candidate.response, ground_truth) for candidate in rolled.group.candidates]
            rolled.verdict = _verdict(found)
            rolled.shaped = shape_rewards(rolled.group, rolled.verdict, self.shaping, self.policy)
            rolled.measures = {
                part: [getattr(one, part) if one.valid_answer else None for one in found]
                for part in parts_of(self.rule)
            }


def _ground_truth(group: Group) -> str:
    if group.task.reference is None:
        raise ValueError(f"group {group.group_id!r} has no ground truth")
    return group.task.reference


def _verdict(found: Sequence[RankingReward]) -> Verdict:
    return Verdict(
        tuple(Status.SCORED if one.valid_answer else Status.UNPARSABLE_CANDIDATE for one in found),
        tuple(one.score if one.valid_answer else None for one in found),
    )
