"""Evaluation during training: greedy beside sampled translations, divided among the ranks, judged like a rollout."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.rolled import TASK

from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import TranslatedPrompt
from grrm.evaluation.reward_alarm import MIN_REFERENCES, RewardAlarm
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.held_out import Decoding, HeldOut, StopWhenNoBetter
from grrm.rl.records import Judged
from grrm.rl.rollout import RolloutWorker
from grrm.rl.run import build_held_out
from grrm.rl.trainer import GroupPolicyTrainer
from grrm.rl.verdict import read_evaluation, write_evaluation


class EchoEngine(Engine):
    """Greedy answers are token 1, sampled ones 2 and up; notes the temperatures and prompts."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, list[list[int]]]] = []

    def _generate(self, requests, on_finished):
        params = requests[0].params
        self.calls.append((params.temperature, params.top_p, [request.prompt for request in requests]))
        first = 1 if params.temperature == 0 else 2
        for place, request in enumerate(requests):
            on_finished(place, Completion([first + request.stream_id % 2], [-1.0], "stop"))


class TokenRewarder:
    """The reward of a sample is its token; None for those in `unscored`."""

    def __init__(self, unscored=(), error: Exception | None = None) -> None:
        self.unscored, self.error, self.ids = unscored, error, []

    def judge_groups(self, groups) -> list[Judged]:
        if self.error is not None:
            raise self.error
        assert all(len(rolled.finish_reasons) == len(rolled.token_ids) for rolled in groups)
        self.ids += [[candidate.candidate_id for candidate in rolled.group.candidates] for rolled in groups]
        return [Judged(rolled) for rolled in groups]

    def shape(self, judged):
        values = [tokens[0] for tokens in judged.rolled.token_ids]
        return SimpleNamespace(rewards=[None if v in self.unscored else float(v) for v in values])


def held_out(n_prompts: int = 2, samples: int = 2, rewarder=None, ranks: DataRanks | None = None, **rest) -> HeldOut:
    worker = RolloutWorker(
        engine=EchoEngine(),
        decode=str,
        extract=lambda text, _: text,
        sampling=SamplingParams(max_new_tokens=4, temperature=0.7, top_p=0.9),
        rollout_n=8,
    )
    prompts = [PromptItem(i, [i], f"p{i}", TASK) for i in range(n_prompts)]
    decoding = Decoding(samples, **{key: rest.pop(key) for key in ("temperature", "top_p", "greedy") if key in rest})
    return HeldOut(prompts, worker, rewarder or TokenRewarder(), decoding, ranks or DataRanks(0, 1), **rest)


def test_greedy_and_sampled_means_are_apart():
    evaluation = held_out()
    assert evaluation.evaluate(1).metrics == {
        "eval_reward": 2.5,
        "eval_reward_greedy": 1.5,
        "eval_response_length_mean": 1.0,
        "eval_response_length_mean_greedy": 1.0,
        "eval_frac_unrewarded": 0.0,
        "eval_frac_duplicate": 0.25,  # the second greedy answer is a sample too
    }
    assert evaluation.rewarder.ids == [["greedy", "0", "1"]] * 2
    assert [call[:2] for call in evaluation.worker.engine.calls] == [(0.0, 1.0), (1.0, 1.0)]


def test_samples_are_drawn_as_the_evaluation_says_and_not_as_rollouts():
    evaluation = held_out(temperature=0.5, top_p=0.7)
    evaluation.evaluate(1)
    assert [call[:2] for call in evaluation.worker.engine.calls] == [(0.0, 1.0), (0.5, 0.7)]


def test_without_samples_the_greedy_reward_is_the_reward():
    metrics = held_out(samples=0).evaluate(1).metrics
    assert (metrics["eval_reward"], metrics["eval_reward_greedy"], metrics["eval_frac_unrewarded"]) == (1.5, 1.5, 0.0)
    assert "eval_frac_duplicate" not in metrics


def test_without_greedy_decoding_there_are_samples_only():
    evaluation = held_out(greedy=False, has_references=True)
    metrics = evaluation.evaluate(1).metrics
    assert metrics["eval_reward"] == 2.5
    assert not [name for name in metrics if "greedy" in name]
    assert evaluation.rewarder.ids == [["0", "1"]] * 2
    assert [call[:2] for call in evaluation.worker.engine.calls] == [(1.0, 1.0)]


def test_unscored_samples_are_counted_not_zero():
    metrics = held_out(rewarder=TokenRewarder(unscored=(3,))).evaluate(1).metrics
    assert (metrics["eval_reward"], metrics["eval_reward_greedy"], metrics["eval_frac_unrewarded"]) == (2.0, 1.5, 0.5)
    metrics = held_out(rewarder=TokenRewarder(unscored=(1, 2, 3))).evaluate(1).metrics
    assert math.isnan(metrics["eval_reward"])
    assert metrics["eval_frac_unrewarded"] == 1.0


def test_rewards_of_a_judge_that_only_compares_are_told_once():

    class Ranks(TokenRewarder):
        def shape(self, judged):
            rewards = [0.9, 0.5, 0.1] if judged.rolled.position % 2 else [0.3, 0.5, 0.7]
            return SimpleNamespace(rewards=rewards)

    alarm = RewardAlarm([TASK] * MIN_REFERENCES)
    evaluation = held_out(n_prompts=MIN_REFERENCES, rewarder=Ranks(), has_references=True, alarm=alarm)
    evaluations = [evaluation.evaluate(step) for step in (1, 2)]
    lines = [line for one in evaluations for line in one.lines]
    assert ["eval_reward says nothing about progress" in line for line in lines] == [False, True, False]
    assert all(one.is_relative for one in evaluations)
    assert not {"eval_alarm/raised", "eval_alarm/reward_change"} & {*evaluations[1].metrics}
    assert "eval_alarm/chrf_greedy_change_low" in evaluations[1].metrics
    assert len(held_out(n_prompts=10).evaluate(1).lines) == 1


def test_a_resumed_run_remembers_that_rewards_only_compare():
    """Two prompts are too few to tell again, and early stopping would count their equal rewards."""
    first = held_out(is_relative=True, greedy=False)
    trainer = SimpleNamespace(held_out=first, stopper=None, maker=SimpleNamespace(state=dict))
    state = json.loads(json.dumps(GroupPolicyTrainer.marker_state(trainer)))
    decoding = {"eval_samples": 2, "eval_temperature": 1.0, "eval_top_p": 1.0, "eval_greedy": False}
    config = SimpleNamespace(use_rule_reward=False, metric_for_best_model=None, **decoding)
    sampler = SimpleNamespace(worker=first.worker, rewarder=first.rewarder, ranks=DataRanks(0, 1))
    for saved, is_relative in ((state, True), ({}, False)):
        assert build_held_out(config, first.prompts, sampler, saved).evaluate(2).is_relative is is_relative


class Peer:
    """A rank that runs in a thread beside the others, as far as a held-out evaluation can tell."""

    share_of, gather_shares = DataRanks.share_of, DataRanks.gather_shares

    def __init__(self, rank: int, board: list, barrier: threading.Barrier) -> None:
        self.rank, self.size, self._board, self._barrier = rank, len(board), board, barrier

    def gather(self, record):
        self._board[self.rank] = record
        self._barrier.wait(timeout=120)
        found = list(self._board)
        self._barrier.wait(timeout=120)
        return found


def test_ranks_divide_the_prompts_and_all_find_what_one_would():
    board, barrier = [None] * 4, threading.Barrier(4)
    ranks = [held_out(n_prompts=3, ranks=Peer(rank, board, barrier), has_references=True) for rank in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda mine: mine.evaluate(1), ranks))
    drawn = [[call[2] for call in mine.worker.engine.calls] for mine in ranks]
    assert drawn == [[[[rank]], [[rank]] * 2] for rank in range(3)] + [[]]  # the last one has no prompt
    alone = held_out(n_prompts=3, has_references=True).evaluate(1)
    assert found == [alone] * 4
    assert "eval_chrf_greedy" in alone.metrics


class TurningWorse(EchoEngine):
    """Samples agree more and more in something wrong; greedy answers are the reference before they are wrong too."""

    def _generate(self, requests, on_finished):
        right, params = 9 if len(self.calls) < 4 else 1, requests[0].params  # of two evaluations
        self.calls.append((params.temperature, params.top_p, [request.prompt for request in requests]))
        for place, request in enumerate(requests):
            sampled = 2 + request.stream_id % 2 * (right == 9) + len(self.calls) // 2
            token = right if params.temperature == 0 else sampled
            on_finished(place, Completion([token], [-1.0], "stop"))


def test_alarm_is_raised_on_the_console_and_in_the_metrics_and_survives_a_checkpoint():
    def started() -> HeldOut:
        n_prompts = MIN_REFERENCES + 5
        mine = held_out(n_prompts, has_references=True, alarm=RewardAlarm([TASK] * n_prompts))
        mine.worker.engine = TurningWorse()
        mine.worker.decode = lambda tokens: TASK.reference if tokens == [9] else "wrong" * tokens[0]
        return mine

    whole = started()
    evaluations = [whole.evaluate(step) for step in (10, 20, 30, 40)]
    assert [found.metrics["eval_alarm/raised"] for found in evaluations] == [0.0, 0.0, 1.0, 1.0]
    assert [len(found.lines) for found in evaluations] == [1, 1, 2, 1]
    assert "Since step 10 the judge's reward has risen" in evaluations[2].lines[1]

    for saved_after in (1, 2, 3):
        parts = [started(), started()]
        before = [parts[0].evaluate(step) for step in (10, 20, 30, 40)[:saved_after]]
        parts[1].alarm.restore(json.loads(json.dumps(parts[0].alarm.state())))
        parts[1].worker.engine.calls = list(parts[0].worker.engine.calls)
        assert before + [parts[1].evaluate(step) for step in (10, 20, 30, 40)[saved_after:]] == evaluations


@pytest.mark.parametrize("error", [RewardServerError("http://s", ("g",), 2, "gone"), RewardFailure("told to stop")])
def test_failing_judge_stops_the_evaluation_with_its_sentence(error):
    with pytest.raises(RewardFailure, match=f"judging held-out translations failed on rank 0: .*{str(error)[-6:]}"):
        held_out(rewarder=TokenRewarder(error=error)).evaluate(1)


def test_a_rank_that_cannot_sample_stops_every_rank():
    board, barrier = [None] * 2, threading.Barrier(2)
    ranks = [held_out(ranks=Peer(rank, board, barrier)) for rank in range(2)]

    def fail(requests, on_finished):
        raise UserError("no server answers")

    ranks[1].worker.engine._generate = fail
    with ThreadPoolExecutor(2) as threads:
        evaluations = [threads.submit(mine.evaluate, 1) for mine in ranks]
    for evaluation in evaluations:
        with pytest.raises(UserError, match=r"sampling held-out .* rank 1 \(1 of 2 ranks failed\): no server answers"):
            evaluation.result()


def test_an_evaluation_with_line_separators_in_its_texts_is_read_again(tmp_path):
    prompt = TranslatedPrompt(TASK, ("one\u2028two", None), (1.0, None), (3, 4))
    write_evaluation(tmp_path, 0, [replace(prompt, responses=("one\u2028two", "three\x85\x0b\nfour"))])
    assert read_evaluation(tmp_path, 0) == [prompt]


def test_training_stops_after_evaluations_without_improvement():
    control = SimpleNamespace(should_training_stop=False)
    callback = StopWhenNoBetter(patience=2, threshold=0.1)
    stops = []
    for reward in (0.5, 0.55, 0.7, 0.75, 0.6, 0.9):
        callback.on_evaluate(None, None, control, {"eval_reward": reward})
        stops.append(control.should_training_stop)
    assert stops == [False, False, False, False, True, True]


def test_early_stopping_passes_over_evaluations_without_a_score():
    control = SimpleNamespace(should_training_stop=False)
    callback = StopWhenNoBetter(patience=1, threshold=0.0)
    for reward in (0.5, float("nan"), float("nan"), 0.6):
        callback.on_evaluate(None, None, control, {"eval_reward": reward})
        assert not control.should_training_stop
    assert callback.best == 0.6


def test_early_stopping_does_not_count_rewards_that_only_compare():
    control = SimpleNamespace(should_training_stop=False)
    callback = StopWhenNoBetter(patience=2, threshold=0.0)
    callback.is_off = True
    for _ in range(4):
        callback.on_evaluate(None, None, control, {"eval_reward": 0.5})
    assert not control.should_training_stop
    assert not callback.is_done


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
