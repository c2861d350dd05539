"""From judged groups to micro-batches: what the denominators count, and what rewards and advantages are scaled by."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.rolled import IdleEngine, rolled_group

from grrm.algorithms.advantages.moments import RunningMoments
from grrm.config import RLConfig
from grrm.config.batch_plan import batch_plan
from grrm.gqm.groups import Status, Verdict
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.failure_policy import FailureAction, FailurePolicy, RewardFailure
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.batch_sampler import BatchSampler
from grrm.rl.experience_maker import ExperienceMaker
from grrm.rl.records import ModelOutputs, Rolled
from grrm.rl.reward_stage import RewardStage

LENGTHS = [[2, 3, 1], [4, 1, 2]]  # of the responses of each prompt
SETTINGS = {
    "rollout_n": 3,
    "global_batch_size": 2,
    "per_device_train_batch_size": 3,
    "max_steps": 8,
    "max_dec_len": 10,
    "dataloader_shuffle": False,
    "rollout_seed": 1,
    "balance_batch": False,
    "kl_coeff": 0.0,
    "gamma": 1.0,
    "advantage_rule": "dr_grpo",
    "normalize_reward": False,
    "normalize_advantage": False,
    "max_unscored_fraction": 1.0,
}


def no_outputs(groups: list[Rolled]) -> list[ModelOutputs]:
    return [ModelOutputs()] * len(groups)


def maker(scores, policy=None, score=no_outputs, **settings) -> ExperienceMaker:
    """Makes rollouts of two prompts; `scores` has the judge's scores of each, a status where there is none."""
    config = RLConfig(**{**SETTINGS, **settings})
    verdicts = [
        Verdict(
            tuple(one if isinstance(one, Status) else Status.SCORED for one in group),
            tuple(None if isinstance(one, Status) else one for one in group),
        )
        for group in scores
    ]

    def roll_out(batch, on_group):
        return [rolled_group(p, LENGTHS[p], name=f"{batch.generation}-{p}") for p in batch.positions]

    def judge(groups):
        return [verdicts[int(group.group_id.split("-")[1])] for group in groups]

    worker = SimpleNamespace(roll_out=roll_out, engine=IdleEngine())
    rewarder = RewardStage(SimpleNamespace(judge=judge), ShapingConfig(), policy or FailurePolicy())
    sampler = BatchSampler([None, None], worker, rewarder, batch_plan(config, 1, 2), config, DataRanks(0, 1))
    return ExperienceMaker(sampler, score)


def test_denominators_count_scored_responses_and_for_the_sft_term_those_above_their_baseline():
    """Rewards 0.2, 0.4, 0.6 of 2, 3 and 1 tokens, then 0.5, none, 0.5 of 4, 1 and 2."""
    made = maker([[2.0, 4.0, 6.0], [5.0, Status.JUDGE_UNPARSABLE, 5.0]]).make(0)
    (denominators,) = made.denominators
    assert (denominators.tokens, denominators.sequences) == (2 + 3 + 1 + 4 + 2, 5)
    assert (denominators.sft_tokens, denominators.sft_sequences) == (1, 1)  # 0.6 alone: an advantage of 0 teaches none
    assert denominators.width == 10  # Dr. GRPO divides by the longest response that there can be
    rows = [row for micro in made.micro_batches[0] for row in micro]
    by_tokens = {tuple(row.token_ids): row for row in rows}
    unscored = by_tokens[tuple(made.groups[1].rolled.token_ids[1])]
    assert not unscored.mask_T.any()
    assert [int(row.mask_T.sum()) for row in rows if row is not unscored] == [
        len(row.token_ids) for row in rows if row is not unscored
    ]


def test_each_update_of_a_rollout_has_its_own_groups_and_denominators():
    made = maker([[2.0, 4.0, 6.0], [5.0, 1.0, 0.0]], global_mini_batch_size=1, update_iters=2).make(0)
    assert [one.tokens for one in made.denominators] == [6, 7, 6, 7]
    assert [[len(row.token_ids) for micro in update for row in micro] for update in made.micro_batches] == [
        LENGTHS[0],
        LENGTHS[1],
        LENGTHS[0],
        LENGTHS[1],
    ]


@pytest.mark.parametrize("status", [Status.TOO_LONG, Status.JUDGE_UNPARSABLE])
def test_a_text_too_long_for_the_judge_is_masked_and_not_penalised(status):
    made = maker([[2.0, status, 6.0], [5.0, 5.0, 5.0]]).make(0)
    assert made.groups[0].shaped.rewards == (pytest.approx(0.2), None, pytest.approx(0.6))
    np.testing.assert_allclose(made.advantages_RT[:3, 0], [-0.2, 0.0, 0.2])
    assert made.denominators[0].tokens == 6 + 7 - 3


def test_penalised_rows_stay_in_baseline_and_loss():
    made = maker([[2.0, Status.UNPARSABLE_CANDIDATE, 4.0], [5.0, 5.0, 5.0]]).make(0)
    np.testing.assert_allclose(made.advantages_RT[:3, 0], [0.0, -0.2, 0.2], atol=1e-12)
    assert made.denominators[0].tokens == 6 + 7


def test_rollouts_without_a_score_are_counted_across_a_restart():
    """Else a run that is started again after each failure would never stop."""
    silent = [[Status.UNPARSABLE_CANDIDATE] * 3] * 2
    before, again, later = (maker(silent, max_rollouts_unscored=3) for _ in range(3))
    for _ in range(2):
        before.make(0)
    again.restore(before.state())
    with pytest.raises(RewardFailure, match="no response of the first 3 rollouts has a score"):
        again.make(2)
    scoring = maker([[5.0, 1.0, 3.0]] * 2)
    scoring.make(0)
    later.restore(scoring.state())
    for _ in range(3):
        later.make(1)


def test_a_dropped_group_teaches_nothing():
    dropping = FailurePolicy({Status.JUDGE_TIMEOUT: FailureAction.DROP_GROUP})
    made = maker([[2.0, Status.JUDGE_TIMEOUT, 6.0], [5.0, 1.0, 3.0]], policy=dropping).make(0)
    assert not made.advantages_RT[:3].any()
    assert made.denominators[0].tokens == 7


def test_normalised_rewards_are_those_of_all_rollouts_so_far():
    made = maker([[2.0, Status.JUDGE_TIMEOUT, 6.0], [8.0, 0.0, 4.0]], normalize_reward=True)
    expected = RunningMoments()
    for n in (1, 2):
        rewards_R = np.array([0.2, np.nan, 0.6, 0.8, 0.0, 0.4])
        expected.update(rewards_R)
        normal_R = expected.normalize(rewards_R)
        advantages_RT = made.make(0).advantages_RT
        assert made.moments.count == 5 * n
        np.testing.assert_allclose(
            advantages_RT[:, 0],
            [*np.nan_to_num(normal_R[:3] - np.nanmean(normal_R[:3])), *(normal_R[3:] - normal_R[3:].mean())],
            rtol=1e-9,
            atol=1e-12,
        )
    assert made.state()["moments"] == pytest.approx(expected.state_dict())
