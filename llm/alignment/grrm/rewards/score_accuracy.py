"""Rule reward that trains a single-translation judge (SQM): how near its score is to the gold one."""

from __future__ import annotations

from collections.abc import Mapping

from grrm.errors import UserError
from grrm.gqm.compat import qe_score_reward
from grrm.gqm.grammar import Rejection, parse_sqm
from grrm.rewards.ranking_accuracy import INVALID, RankingReward
from grrm.rewards.ranking_ground_truth import GroundTruth, gold_scores

ERROR_CREDIT: Mapping[int, float] = {0: 1.0, 1: 0.8, 2: 0.4, 3: 0.2}  # by error of the score; larger ones earn 0


def single_score_reward(
    response: str, ground_truth: GroundTruth, *, score_scale_factor: float = 1.0, compat: bool = False
) -> RankingReward:
    """Reward in [0, 1] times the scale for a response whose last line is a whole score from 0 to 10.

    The ground truth holds one candidate, `{"A": 7}`. `compat` reads the response as the original did: a reply of one
    line by its last character alone. Raises UserError for a ground truth that is not one score.
    """
    gold = gold_scores(ground_truth)
    if len(gold) != 1:
        truth = repr(ground_truth)[:200]
        raise UserError(f"The ground truth {truth} holds {len(gold)} scores; give one, like {{'A': 7}}.")
    (wanted,) = gold.values()
    if compat:
        credit = qe_score_reward(response, wanted)
        return RankingReward(credit * score_scale_factor, True, None, credit)
    score = parse_sqm(response)
    if isinstance(score, Rejection):
        return INVALID
    credit = ERROR_CREDIT.get(round(abs(score - wanted)), 0.0)
    return RankingReward(credit * score_scale_factor, True, None, credit)
