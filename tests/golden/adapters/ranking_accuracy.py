"""Rewards that train the judge, which read answers strictly."""

import json

from grrm.errors import UserError
from grrm.gqm.groups import ranking_to_scores
from grrm.rewards import ranking_accuracy as ours
from grrm.rewards.ranking_accuracy import gold_ranking


def with_scores(reward):
    def run(row):
        scale = row.get("score_scale_factor", 1.0)
        try:
            found = reward(row["solution_str"], row["ground_truth"])
        except UserError as error:  # ours names the mistake; the original's is the parser's
            raise json.JSONDecodeError(str(error), str(row["ground_truth"]), 0) from error
        return {
            "score": found.score * scale,
            "valid_answer": int(found.valid_answer),
            "ranking_reward": found.ranking_reward,
            "score_reward": found.score_reward,
        }

    return run


def without_scores(reward):
    def run(row):
        found = reward(row["solution_str"], row["ground_truth"])
        assert found.score == found.ranking_reward
        assert found.score_reward == 0
        return {"score": found.score, "valid_answer": int(found.valid_answer)}

    return run


def validate(row):
    return ours.is_ranking_of(row["test"], len(gold_ranking(row["ref"])))


def compare_orderings(row):
    return ours.ordering_agreement(ranking_to_scores(row["test"]), ranking_to_scores(row["ref"]))


def compare_ranking_scores(row):
    return ours.margin_agreement(row["test"], row["ref"])


FIXED = {
    "ranking_score_reward_fn": with_scores(ours.ranking_score_reward),
    "ranking_score_reward_fn_no_cot": with_scores(ours.ranking_score_reward_no_cot),
    "ranking_reward_fn": without_scores(ours.ranking_reward),
    "ranking_reward_fn_no_cot": without_scores(ours.ranking_reward_no_cot),
    "ranking_reward_fn_zero": without_scores(ours.ranking_reward_zero),
    "validate_ranking": validate,
    "compare_orderings": compare_orderings,
    "compare_ranking_scores": compare_ranking_scores,
}
