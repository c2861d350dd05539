"""The rule rewards by the names they have in settings files."""

from __future__ import annotations

from collections.abc import Mapping

from grrm.errors import UserError
from grrm.rewards.ranking_accuracy import (
    RankingRewardFunction,
    ranking_reward,
    ranking_reward_no_cot,
    ranking_reward_zero,
    ranking_score_reward,
    ranking_score_reward_no_cot,
    score_reward,
)
from grrm.rewards.score_accuracy import single_score_reward

RULE_REWARDS: Mapping[str, RankingRewardFunction] = {
    "ranking_score": ranking_score_reward,
    "ranking_score_no_cot": ranking_score_reward_no_cot,
    "score": score_reward,
    "ranking": ranking_reward,
    "ranking_no_cot": ranking_reward_no_cot,
    "ranking_zero": ranking_reward_zero,
    "single_score": single_score_reward,
}


def rule_reward_function(name: str) -> RankingRewardFunction:
    """The reward of a settings file's `name`. Raises UserError for one that does not exist."""
    if name not in RULE_REWARDS:
        raise UserError(f"The rule reward {name!r} does not exist; use one of {', '.join(RULE_REWARDS)}.")
    return RULE_REWARDS[name]


def parts_of(rule: RankingRewardFunction) -> tuple[str, ...]:
    """The parts of a `RankingReward` that the rule fills."""
    if rule is single_score_reward:
        return ("score_reward",)
    if rule in (ranking_reward, ranking_reward_no_cot, ranking_reward_zero):
        return ("ranking_reward",)
    return ("ranking_reward", "score_reward")
