"""The judge works while tokens are scored, and neither keeps the other's failure from being told at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from support.rolled import rolled_group

from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FailureBudget, RewardFailure
from grrm.rl.experience_maker import ExperienceMaker, RolloutSettings

PATIENCE_S = 60.0
SETTINGS = RolloutSettings(
    rollout_n=2,
    seed=1,
    shuffle=False,
    drop_last=True,
    balance=False,
    dynamic_sampling=False,
    max_gen_batches=1,
    kl_coeff=0.0,
    gamma=1.0,
    clip_range_score=None,
    max_dec_len=4,
)


def maker(reward, score) -> ExperienceMaker:
    return ExperienceMaker(
        prompts=[None],
        worker=SimpleNamespace(roll_out=lambda items, positions, generation: [rolled_group(0, [2, 2])]),
        rewarder=SimpleNamespace(reward=reward),
        advantage_rule=None,
        score_tokens=score,
        plan=None,
        settings=SETTINGS,
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
