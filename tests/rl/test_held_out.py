"""Evaluation during training: greedy beside sampled translations, divided among the ranks, judged like a rollout."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from support.rolled import TASK

from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion, SamplingParams
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.held_out import HeldOut, StopWhenNoBetter
from grrm.rl.rollout import RolloutWorker


class Engine:
    """Greedy answers are token 1, sampled ones 2 and up; notes the temperatures and prompts."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, list[list[int]]]] = []

    def wake(self) -> None: ...

    def update_weights(self) -> None: ...

    def sleep(self) -> None: ...

    def generate(self, prompts, params, *, stream_ids, on_finished):
        self.calls.append((params.temperature, params.top_p, prompts))
        first = 1 if params.temperature == 0 else 2
        made = [Completion([first + i % 2], [-1.0], "stop") for i in range(len(prompts))]
        for place, completion in enumerate(made):
            on_finished(place, completion)
        return made


class TokenRewarder:
    """The reward of a sample is its token; None for those in `unscored`."""

    def __init__(self, unscored=(), error: Exception | None = None) -> None:
        self.unscored, self.error, self.ids = unscored, error, []

    def reward(self, groups) -> None:
        if self.error is not None:
            raise self.error
        for rolled in groups:
            self.ids.append([candidate.candidate_id for candidate in rolled.group.candidates])
            values = [tokens[0] for tokens in rolled.token_ids]
            rolled.shaped = SimpleNamespace(rewards=[None if v in self.unscored else float(v) for v in values])


def held_out(n_prompts: int = 2, samples: int = 2, rewarder=None, ranks: DataRanks | None = None) -> HeldOut:
    worker = RolloutWorker(
        engine=Engine(),
        decode=str,
        extract=lambda text: text,
        sampling=SamplingParams(max_new_tokens=4, temperature=0.7, top_p=0.9),
        rollout_n=8,
    )
    prompts = [PromptItem(i, [i], f"p{i}", TASK) for i in range(n_prompts)]
    return HeldOut(prompts, worker, rewarder or TokenRewarder(), samples, ranks or DataRanks(0, 1))


def test_greedy_and_sampled_means_are_apart():
    evaluation = held_out()
    assert evaluation.evaluate() == {"eval_reward": 2.5, "eval_reward_greedy": 1.5, "eval_frac_unrewarded": 0.0}
    assert evaluation.rewarder.ids == [["greedy", "0", "1"]] * 2
    assert [call[:2] for call in evaluation.worker.engine.calls] == [(0.0, 1.0), (1.0, 1.0)]


def test_without_samples_the_greedy_reward_is_the_reward():
    assert held_out(samples=0).evaluate() == {
        "eval_reward": 1.5,
        "eval_reward_greedy": 1.5,
        "eval_frac_unrewarded": 0.0,
    }


def test_unscored_samples_are_counted_not_zero():
    metrics = held_out(rewarder=TokenRewarder(unscored=(3,))).evaluate()
    assert metrics == {"eval_reward": 2.0, "eval_reward_greedy": 1.5, "eval_frac_unrewarded": 0.5}
    metrics = held_out(rewarder=TokenRewarder(unscored=(1, 2, 3))).evaluate()
    assert math.isnan(metrics["eval_reward"])
    assert metrics["eval_frac_unrewarded"] == 1.0


class Ranks(DataRanks):
    """A rank whose peers have nothing of their own to say."""

    def gather(self, record):
        return [None if record is None else []] * self.rank + [record] + [[] if record is not None else None]


def test_ranks_divide_the_prompts_and_one_without_any_still_takes_part():
    mine = held_out(n_prompts=3, ranks=Ranks(1, 2))
    mine.evaluate()
    assert mine.worker.engine.calls[0][2] == [[1]]
    idle = held_out(n_prompts=1, ranks=Ranks(1, 2))
    assert math.isnan(idle.evaluate()["eval_reward"])
    assert idle.worker.engine.calls == []


@pytest.mark.parametrize("error", [RewardServerError("http://s", ("g",), 2, "gone"), RewardFailure("told to stop")])
def test_failing_judge_stops_the_evaluation_with_its_sentence(error):
    with pytest.raises(RewardFailure, match=f"judging held-out translations failed on rank 0: .*{str(error)[-6:]}"):
        held_out(rewarder=TokenRewarder(error=error)).evaluate()


def test_training_stops_after_evaluations_without_improvement():
    control = SimpleNamespace(should_training_stop=False)
    callback = StopWhenNoBetter(patience=2, threshold=0.1)
    stops = []
    for reward in (0.5, 0.55, 0.7, 0.75, float("nan"), 0.9):
        callback.on_evaluate(None, None, control, {"eval_reward": reward})
        stops.append(control.should_training_stop)
    assert stops == [False, False, False, False, True, True]


def test_early_stopping_goes_on_counting_where_a_checkpoint_left_it():
    control = SimpleNamespace(should_training_stop=False)
    first = StopWhenNoBetter(patience=2, threshold=0.0)
    assert first.state() == {"best": None, "misses": 0}
    for reward in (0.5, 0.4):
        first.on_evaluate(None, None, control, {"eval_reward": reward})
    resumed = StopWhenNoBetter(patience=2, threshold=0.0)
    resumed.restore(None)
    resumed.restore(first.state())
    assert not resumed.is_done
    resumed.on_evaluate(None, None, control, {"eval_reward": 0.45})
    assert control.should_training_stop
    assert resumed.is_done
