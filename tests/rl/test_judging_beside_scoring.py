"""The judge works while tokens are sampled or scored, and neither keeps the other's failure from being told at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from support.rolled import rolled_group

from grrm.config import RLConfig
from grrm.parallel.collective import CollectiveFailure
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FailureBudget, RewardFailure
from grrm.rl.experience_maker import ExperienceMaker
from grrm.rl.reward_stream import RewardStream

PATIENCE_S = 60.0
CONFIG = RLConfig(rollout_n=2, rollout_seed=1, dataloader_shuffle=False, dataloader_drop_last=True, max_gen_batches=1)


def two_at_once(items, positions, generation, on_group):
    assert on_group is None
    return [rolled_group(position, [2, 2]) for position in positions]


def maker(reward, score, roll_out=two_at_once, **settings) -> ExperienceMaker:
    return ExperienceMaker(
        prompts=[None, None],
        worker=SimpleNamespace(roll_out=roll_out),
        rewarder=SimpleNamespace(reward=reward),
        advantage_rule=None,
        score_tokens=score,
        plan=None,
        config=CONFIG.model_copy(update=settings),
        ranks=DataRanks(0, 1),
        budget=FailureBudget(max_fraction=1.0),
    )


def test_tokens_are_scored_while_the_judge_is_at_work():
    asked, scored = threading.Event(), threading.Event()

    def reward(groups):
        asked.set()
        assert scored.wait(PATIENCE_S)

    def score(groups):
        assert asked.wait(PATIENCE_S)
        time.sleep(0.05)
        scored.set()

    made = maker(reward, score)
    assert len(made._generate(1)) == 1
    assert made._seconds["judge"] >= made._seconds["logprob"] >= 0.05


def test_a_judge_that_fails_meanwhile_fails_the_rollout():
    def reward(groups):
        raise RewardServerError("http://judge", ["g0"], 3, "connection refused")

    with pytest.raises(RewardFailure, match=r"judging failed on rank 0.*http://judge.*g0"):
        maker(reward, lambda groups: None)._generate(1)


def test_a_failure_of_scoring_does_not_wait_for_a_judge_that_hangs():
    release = threading.Event()

    def score(groups):
        raise MemoryError("too long")

    started = time.monotonic()
    with pytest.raises(MemoryError, match="too long"):
        maker(lambda groups: release.wait(PATIENCE_S), score)._generate(1)
    release.set()
    assert time.monotonic() - started < PATIENCE_S / 2


def test_a_group_is_judged_while_others_are_still_sampled():
    first_judged, requests = threading.Event(), []

    def reward(groups):
        requests.append([rolled.position for rolled in groups])
        first_judged.set()

    def roll_out(items, positions, generation, on_group):
        groups = [rolled_group(position, [2, 2]) for position in positions]
        on_group(groups[1])
        assert first_judged.wait(PATIENCE_S)
        on_group(groups[0])
        return groups

    assert len(maker(reward, lambda groups: None, roll_out, reward_streaming=True)._generate(2)) == 2
    assert requests == [[1], [0]]


def test_groups_that_come_while_the_judge_is_at_work_are_judged_together():
    asked, others_came, requests = threading.Event(), threading.Event(), []

    def reward(groups):
        requests.append(len(groups))
        asked.set()
        assert others_came.wait(PATIENCE_S)

    with RewardStream(SimpleNamespace(reward=reward)) as rewards:
        rewards.put([rolled_group(0, [2])])
        assert asked.wait(PATIENCE_S)
        rewards.put([rolled_group(1, [2])])
        rewards.put([rolled_group(2, [2]), rolled_group(3, [2])])
        others_came.set()
        rewards.wait()
    assert requests == [1, 3]


def test_a_judge_that_fails_while_others_are_sampled_fails_the_rollout():
    def reward(groups):
        raise RewardServerError("http://judge", ["g0"], 3, "connection refused")

    def roll_out(items, positions, generation, on_group):
        groups = [rolled_group(position, [2, 2]) for position in positions]
        for group in groups:
            on_group(group)
        return groups

    with pytest.raises(RewardFailure, match=r"judging failed on rank 0.*http://judge"):
        maker(reward, lambda groups: None, roll_out, reward_streaming=True)._generate(2)


def test_groups_of_a_rollout_that_failed_are_not_judged():
    asked, release, requests = threading.Event(), threading.Event(), []

    def reward(groups):
        requests.append(len(groups))
        asked.set()
        assert release.wait(PATIENCE_S)

    with RewardStream(SimpleNamespace(reward=reward)) as rewards:
        rewards.put([rolled_group(0, [2])])
        assert asked.wait(PATIENCE_S)
        rewards.put([rolled_group(1, [2])])
    release.set()
    rewards._result.wait(PATIENCE_S)
    assert requests == [1]


def test_sampling_that_fails_does_not_wait_for_groups_that_never_come():
    def roll_out(items, positions, generation, on_group):
        raise FloatingPointError("logits that are no numbers")

    with pytest.raises(CollectiveFailure, match=r"sampling failed on rank 0.*no numbers"):
        maker(lambda groups: None, lambda groups: None, roll_out, reward_streaming=True)._generate(1)
