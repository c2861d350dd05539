"""The judge works while tokens are sampled or scored, and neither keeps the other's failure from being told at once."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from support.rolled import IdleEngine, Watched, rolled_group
from support.stopped_clock import PATIENCE_S, stop_clock

from grrm.config import RLConfig
from grrm.gqm.groups import Status, Verdict
from grrm.parallel.data_ranks import CollectiveFailure, DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FailureAction, FailurePolicy, RewardFailure
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.batch_sampler import BatchSampler
from grrm.rl.experience_maker import ExperienceMaker
from grrm.rl.records import ModelOutputs, Rolled
from grrm.rl.reward_stage import RewardStage
from grrm.rl.reward_stream import RewardStream
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.tracking.rollout_dump import RolloutDump, read_rollouts
from grrm.tracking.run_record import RunRecord

CONFIG = RLConfig(
    rollout_n=2, rollout_seed=1, dataloader_shuffle=False, dataloader_drop_last=True, dynamic_sampling=False
)


def two_at_once(batch, on_group):
    assert on_group is None
    return [rolled_group(position, [2, 2]) for position in batch.positions]


def nothing(groups) -> None:
    """Work of a judge or a model that takes no time."""


def maker(reward=nothing, score=nothing, roll_out=two_at_once, n_prompts=1, rewarder=None, **settings):
    """Makes rollouts of `n_prompts`; `reward` and `score` are called with the groups to be judged and scored."""

    def outputs_of(groups: list[Rolled]) -> list[ModelOutputs]:
        score(groups)
        return [ModelOutputs()] * len(groups)

    worker = SimpleNamespace(roll_out=roll_out, engine=IdleEngine())
    config, plan = CONFIG.model_copy(update=settings), SimpleNamespace(prompts_generated_per_pass=n_prompts)
    sampler = BatchSampler([None, None], worker, rewarder or Watched(reward), plan, config, DataRanks(0, 1))
    return ExperienceMaker(sampler, outputs_of)


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
    assert len(made.generate(0)) == 1
    assert made._seconds["judge_overlapped"] >= 0.05
    assert made._seconds["logprob"] >= 0.05


def test_a_judge_with_the_device_to_itself_is_done_before_tokens_are_scored():
    done = threading.Event()

    def reward(groups):
        time.sleep(0.05)
        done.set()

    made = maker(reward, lambda groups: scored.append(done.is_set()))
    made.judges_by_phase, scored = True, []
    made.generate(0)
    assert scored == [True]
    assert made._seconds["judge_waiting"] >= 0.05
    assert made._seconds["judge_overlapped"] == 0


@pytest.mark.parametrize("streaming", [False, True])
def test_a_judge_that_fails_meanwhile_fails_the_rollout(streaming):
    def reward(groups):
        raise RewardServerError("http://judge", ["g0"], 3, "connection refused")

    def roll_out(batch, on_group):
        groups = [rolled_group(position, [2, 2]) for position in batch.positions]
        for group in groups if streaming else ():
            on_group(group)
        return groups

    with pytest.raises(RewardFailure, match=r"judging failed on rank 0.*http://judge.*g0"):
        maker(reward, roll_out=roll_out, n_prompts=2, reward_streaming=streaming).generate(0)


def test_time_spent_waiting_for_the_judge_is_told_from_time_it_worked_meanwhile(monkeypatch):
    clock = stop_clock(monkeypatch, "grrm.rl.experience_maker", "grrm.rl.batch_sampler", "grrm.rl.reward_stream")
    waiting, wait = threading.Event(), RewardStream.wait
    monkeypatch.setattr(RewardStream, "wait", lambda stream: waiting.set() or wait(stream))

    def reward(groups):
        assert waiting.wait(PATIENCE_S)
        clock.sleep(5)

    made = maker(reward)
    made.generate(0)
    assert made._seconds["judge_waiting"] == 5
    made = maker()
    made.generate(0)
    assert made._seconds["judge_waiting"] == 0


def test_an_aborted_step_leaves_its_groups_statuses_and_the_judges_replies_in_the_dump(tmp_path):
    judge = SimpleNamespace(judge=lambda groups: [verdict_that_stops_the_run for _ in groups])
    verdict_that_stops_the_run = Verdict(
        (Status.JUDGE_UNPARSABLE,) * 2, (None,) * 2, analysis="I cannot say.", attempts=1
    )
    stage = RewardStage(judge, ShapingConfig(), FailurePolicy({Status.JUDGE_UNPARSABLE: FailureAction.ABORT}))
    made = maker(rewarder=stage, n_prompts=2)
    record = RunRecord(None, RolloutDump(tmp_path), None, console_groups=0)
    trainer = SimpleNamespace(maker=made, record=record, autocast_smart_context_manager=nullcontext)
    trainer.state = SimpleNamespace(global_step=2)
    with pytest.raises(RewardFailure, match="judge_unparsable"):
        GroupPolicyTrainer._make(trainer, 3)
    dumped = list(read_rollouts(tmp_path))
    assert [(group["step"], group["group_id"], group["use"]) for group in dumped] == [
        (3, "0-0", "aborted"),
        (3, "0-1", "aborted"),
    ]
    assert {group["verdict"]["analysis"] for group in dumped} == {"I cannot say."}
    assert {candidate["reward"] for group in dumped for candidate in group["candidates"]} == {None}
    assert {candidate["status"] for group in dumped for candidate in group["candidates"]} == {"judge_unparsable"}


def test_a_failure_of_scoring_does_not_wait_for_a_judge_that_hangs():
    release, ended = threading.Event(), threading.Event()

    def reward(groups):
        release.wait(PATIENCE_S)
        ended.set()

    def score(groups):
        raise MemoryError("too long")

    with pytest.raises(MemoryError, match="too long"):
        maker(reward, score).generate(0)
    assert not ended.is_set()
    release.set()


def test_a_group_is_judged_while_others_are_still_sampled():
    first_judged, requests = threading.Event(), []

    def reward(groups):
        requests.append([rolled.position for rolled in groups])
        first_judged.set()

    def roll_out(batch, on_group):
        groups = [rolled_group(position, [2, 2]) for position in batch.positions]
        on_group(groups[1])
        assert first_judged.wait(PATIENCE_S)
        on_group(groups[0])
        return groups

    assert len(maker(reward, roll_out=roll_out, n_prompts=2, reward_streaming=True).generate(0)) == 2
    assert requests == [[1], [0]]


def test_groups_that_come_while_the_judge_is_at_work_are_judged_together():
    asked, others_came, requests = threading.Event(), threading.Event(), []

    def reward(groups):
        requests.append(len(groups))
        asked.set()
        assert others_came.wait(PATIENCE_S)

    with RewardStream(Watched(reward)) as rewards:
        rewards.put([rolled_group(0, [2])])
        assert asked.wait(PATIENCE_S)
        rewards.put([rolled_group(1, [2])])
        rewards.put([rolled_group(2, [2]), rolled_group(3, [2])])
        others_came.set()
        rewards.wait()
    assert requests == [1, 3]


def test_groups_of_a_rollout_that_failed_are_not_judged():
    asked, release, requests = threading.Event(), threading.Event(), []

    def reward(groups):
        requests.append(len(groups))
        asked.set()
        assert release.wait(PATIENCE_S)

    with RewardStream(Watched(reward)) as rewards:
        rewards.put([rolled_group(0, [2])])
        assert asked.wait(PATIENCE_S)
        rewards.put([rolled_group(1, [2])])
    release.set()
    rewards._end.result(PATIENCE_S)  # its thread has ended
    assert requests == [1]


def test_sampling_that_fails_does_not_wait_for_groups_that_never_come():
    def roll_out(batch, on_group):
        raise FloatingPointError("logits that are no numbers")

    with pytest.raises(CollectiveFailure, match=r"sampling failed on rank 0.*no numbers"):
        maker(roll_out=roll_out, reward_streaming=True).generate(0)
