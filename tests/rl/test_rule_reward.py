"""The reward that trains a judge: its verdict against the ground truth of its row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.rolled import rolled_group, scored_group

from grrm.config import RLConfig
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.failure_policy import FailurePolicy, RewardFailure
from grrm.rewards.group_filter import GroupSignal, classify_group
from grrm.rewards.shaping import OverlongConfig, ShapingConfig
from grrm.rl.experience_maker import Experience
from grrm.rl.metrics import rollout_metrics
from grrm.rl.reward_sources import build_rewarder
from grrm.rl.reward_stage import RuleRewardStage, reward, shaping_config

GOLD = '{"A": 8, "B": 3, "C": 3}'
RIGHT = "A is better.\n\n### Final Ranking:\n\nA > B = C\n\n### Scores:\n\nA: 8, B: 3, C: 3\n"
SHIFTED = "A is better.\n\n### Final Ranking:\n\nA > B = C\n\n### Scores:\n\nA: 9, B: 3, C: 3\n"
CONTRADICTING = "A is better.\n\n### Final Ranking:\n\nB > A = C\n\n### Scores:\n\nA: 8, B: 3, C: 3\n"
CUT_OFF = "A is better.\n\n### Final Ranking:\n\nA > B"
SHAPING = ShapingConfig(1.0, 0.0, unscored_pay_length=True)


def judged(*responses: str, ground_truth: str | None = GOLD, lengths: list[int] | None = None):
    lengths = lengths or [5] * len(responses)
    candidates = tuple(
        Candidate(str(i), response, response, n_tokens)
        for i, (response, n_tokens) in enumerate(zip(responses, lengths, strict=True))
    )
    group = Group("0-0", TranslationTask("prompt", "English", "German", ground_truth), candidates)
    return rolled_group(0, lengths, group=group)


def rewarded(
    rolled, shaping: ShapingConfig = SHAPING, rule: str = "ranking_score", policy: FailurePolicy | None = None
):
    (scored,) = reward(RuleRewardStage(rule, shaping, policy or FailurePolicy()), [rolled])
    return scored


def test_argument_file_chooses_the_rule():
    args = RLConfig(use_rule_reward=True, rule_reward="ranking")
    stage = build_rewarder(args, SHAPING, FailurePolicy(), "<eos>")
    (scored,) = reward(stage, [judged("it is\nA > B = C", ground_truth="A > B = C")])
    assert scored.shaped.rewards == (1.0,)


def test_verdict_is_rewarded_for_its_ordering_and_its_margins():
    scored = rewarded(judged(RIGHT, SHIFTED, CONTRADICTING))
    assert scored.shaped.rewards == pytest.approx((2.0, 1.0 + (0.6 + 0.6 + 1.0) / 3, 0.0))
    assert scored.judged.verdict.statuses == (Status.SCORED, Status.SCORED, Status.UNPARSABLE_CANDIDATE)
    assert scored.judged.verdict.scores[2] is None
    assert scored.judged.measures["ranking_reward"] == [1.0, 1.0, None]
    assert scored.judged.measures["score_reward"] == [1.0, pytest.approx(2.2 / 3), None]


def test_failure_policy_decides_what_an_invalid_verdict_gets():
    masked = FailurePolicy.from_mapping({"unparsable_candidate": "mask"})
    assert rewarded(judged(RIGHT, CUT_OFF), policy=masked).shaped.rewards == (2.0, None)
    abort = FailurePolicy.from_mapping({"unparsable_candidate": "abort"})
    with pytest.raises(RewardFailure, match="Candidate '1' of group '0-0' has no score"):
        rewarded(judged(RIGHT, CUT_OFF), policy=abort)


def test_every_response_pays_for_its_length_and_failures_alone_carry_no_signal():
    shaping = replace(SHAPING, overlong=OverlongConfig(max_resp_len=10, buffer_len=4, penalty_factor=1.0))
    scored = rewarded(judged(RIGHT, CUT_OFF, CUT_OFF, lengths=[8, 8, 12]), shaping)
    assert scored.shaped.rewards == (1.5, -0.5, -1.0)
    assert classify_group(scored.shaped) is GroupSignal.INFORMATIVE
    failures = rewarded(judged(CUT_OFF, CUT_OFF, lengths=[8, 12]), shaping)
    assert classify_group(failures.shaped) is GroupSignal.ALL_FAILED


@pytest.mark.parametrize(
    ("changes", "rewards"),
    [
        ({}, (1.0, 0.75, 0.0, -0.55, -1.3)),
        ({"overlong_penalty_capped": True}, (1.0, 0.75, 0.5, -0.55, -0.8)),
        ({"enable_overlong_reward_buffer": False}, (1.0, 1.0, 1.0, -0.3, -0.3)),
        ({"use_rule_reward": False}, (1.0, 0.75, 0.0, -0.3, -0.3)),
        ({"overlong_reward_buffer": 8}, (0.75, 0.625, 0.25, -0.675, -1.05)),
        ({"overlong_max_resp_len": 14}, (1.0, 1.0, 0.5, -0.3, -0.8)),
        ({"overlong_penalty_factor": 0.1}, (1.0, 0.95, 0.8, -0.35, -0.5)),
        ({"default_reward": 0.0}, (1.0, 0.75, 0.0, -0.25, -1.0)),
        ({"score_scale_factor": 1.0}, (2.0, 1.75, 1.0, -0.55, -1.3)),
    ],
)
def test_each_key_of_scale_and_length_has_its_effect(changes, rewards):
    """Two right answers and two that are cut off; half a point is lost from 6 to 10 tokens, and on from there."""
    keys = {
        "use_rule_reward": True,
        "score_scale_factor": 0.5,
        "default_reward": -0.3,
        "enable_overlong_reward_buffer": True,
        "overlong_max_resp_len": 10,
        "overlong_reward_buffer": 4,
        "overlong_penalty_factor": 0.5,
        "overlong_penalty_capped": False,
    }
    shaping = shaping_config(RLConfig(**{**keys, **changes}))
    scored = rewarded(judged(RIGHT, RIGHT, RIGHT, CUT_OFF, CUT_OFF, lengths=[6, 8, 14, 8, 14]), shaping)
    assert scored.shaped.rewards == pytest.approx(rewards)


def test_unusable_ground_truth_stops_the_run_and_invents_no_reward():
    rolled = judged(RIGHT, ground_truth='{"A": 8, "C": 3}')
    with pytest.raises(UserError, match="does not name the candidates A, B, … without a gap"):
        rewarded(rolled)
    with pytest.raises(ValueError, match="group '0-0' has no ground truth"):
        rewarded(judged(RIGHT, ground_truth=None))


def metrics_of(*groups) -> dict[str, float]:
    n_rows = sum(len(scored.rolled.token_ids) for scored in groups)
    return rollout_metrics(Experience([], [], list(groups), np.zeros((n_rows, 8)), {}, 1))


def test_ranking_accuracy_is_logged_over_valid_verdicts():
    reversed_order = RIGHT.replace("A > B = C", "B = C > A").replace("A: 8, B: 3, C: 3", "A: 3, B: 8, C: 8")
    metrics = metrics_of(rewarded(judged(RIGHT, CUT_OFF)), rewarded(judged(reversed_order, CUT_OFF)))
    assert metrics["ranking_reward_mean"] == pytest.approx((1 + 1 / 3) / 2)
    assert metrics["status/unparsable_candidate"] == 0.5
    assert "ranking_reward_mean" not in metrics_of(rewarded(judged(CUT_OFF)))


def test_only_what_a_rule_asks_for_is_measured():
    ranked = rewarded(judged("it is\nA > B = C", CUT_OFF, ground_truth="A > B = C"), rule="ranking")
    assert ranked.judged.measures == {"ranking_reward": [1.0, None]}
    single = rewarded(judged("near\n\n7", "no score", ground_truth='{"A": 8}'), rule="single_score")
    assert single.judged.measures == {"score_reward": [0.8, None]}


def test_other_rewards_log_no_measures():
    assert "ranking_reward_mean" not in metrics_of(scored_group(0, [1, 2], [3.0, 4.0]))
