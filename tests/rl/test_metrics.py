"""What is logged for a step and for a rollout: sums of shares, and honest numbers where nothing was scored."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import paddle
import pytest
from support.rolled import rolled_group, scored_group

from grrm.gqm.groups import Group, PartVerdict, Status
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.mixing import mix
from grrm.rewards.shaping import ShapedRewards
from grrm.rl.dumped_records import group_records
from grrm.rl.experience_maker import Experience
from grrm.rl.metrics import StepMetrics, logprob_gap, part_metrics, rollout_metrics
from grrm.rl.records import Judged, Scored
from grrm.tracking.rollout_dump import read_rollouts
from grrm.tracking.run_record import RunRecord

NO_GAP = (0.0, 0.0, 1.0)


class Ranks(DataRanks):
    """This rank beside one that reports the same things ten times as large."""

    def gather(self, record):
        metrics, gaps, updates = record
        other = {name: 10 * value for name, value in metrics.items()}
        return [record, (other, [tuple(10 * value for value in gap) for gap in gaps], updates)]


def test_shares_add_up_over_micro_batches_and_average_over_updates():
    metrics = StepMetrics(DataRanks(0, 1), micro_batches_per_update=2)
    for value in (1.0, 2.0, 3.0, 4.0):
        metrics.add({"kl": value, "ratio_max": value}, NO_GAP)
    collected = metrics.collect()
    assert collected["kl"] == 5.0
    assert collected["ratio_max"] == 4.0


def test_a_mean_is_over_the_updates_that_have_the_metric():
    """Two updates of a critic alone, whose micro-batches add nothing of the policy, before two of both."""
    metrics = StepMetrics(DataRanks(0, 1), micro_batches_per_update=2)
    for micro_batch in range(8):
        metrics.share({"value_loss": 1.0})
        metrics.add({} if micro_batch < 4 or micro_batch == 5 else {"ratio_mean": 0.5}, NO_GAP)
    collected = metrics.collect()
    assert (collected["value_loss"], collected["ratio_mean"]) == (2.0, 0.75)


def test_ranks_add_their_shares_and_rollout_metrics_pass_through():
    metrics = StepMetrics(Ranks(0, 2), micro_batches_per_update=1)
    metrics.set({"reward_mean": 0.5})
    metrics.add({"kl": paddle.to_tensor(1.0), "ratio_max": 3.0}, (2.0, 1.5, 4.0))
    collected = metrics.collect()
    assert collected["reward_mean"] == 0.5
    assert (collected["kl"], collected["ratio_max"]) == (11.0, 30.0)
    assert collected["logprob_gap_mean"] == pytest.approx(22 / 44)
    assert collected["logprob_gap_max"] == 15.0


def test_collecting_starts_anew_but_keeps_the_rollout():
    metrics = StepMetrics(DataRanks(0, 1), micro_batches_per_update=1)
    metrics.set({"reward_mean": 0.5})
    metrics.add({"kl": 1.0}, NO_GAP)
    metrics.collect()
    assert metrics.collect() == {"reward_mean": 0.5, "logprob_gap_mean": 0.0, "logprob_gap_max": 0.0}


def test_gap_is_measured_on_valid_tokens_only():
    logprobs_BT = paddle.to_tensor([[-1.0, -2.0], [-3.0, -9.0]], stop_gradient=False)
    engine_BT = paddle.to_tensor([[-1.5, -2.0], [-2.0, 0.0]])
    assert logprob_gap(logprobs_BT, engine_BT, paddle.to_tensor([[1.0, 1.0], [1.0, 0.0]])) == (1.5, 1.0, 3.0)


def experience(*groups) -> Experience:
    n_rows = sum(len(group.rolled.token_ids) for group in groups)
    return Experience([], [], list(groups), np.zeros((n_rows, 4)), {"judge_waiting": 2.0}, 1)


def by_row_server(position: int, *rewards: float, group: Group | None = None):
    """A group as the row protocol leaves it: rewards and no verdict."""
    shaped = ShapedRewards(rewards, rewards, (Status.SCORED,) * len(rewards))
    return Scored(Judged(rolled_group(position, [2] * len(rewards), group=group), row_rewards=rewards), shaped)


def test_rollout_metrics_count_what_was_scored():
    groups = [scored_group(0, [1, 4], [2.0, None]), scored_group(1, [2, 3], [4.0, 6.0])]
    groups[0].rolled.finish_reasons[0] = "length"
    metrics = rollout_metrics(experience(*groups))
    assert metrics["reward_mean"] == pytest.approx(0.4)
    assert metrics["score_mean"] == pytest.approx(4.0)
    assert (metrics["response_length_mean"], metrics["response_length_max"]) == (2.5, 4.0)
    assert (metrics["frac_truncated"], metrics["frac_unscored"]) == (0.25, 0.25)
    assert (metrics["status/scored"], metrics["status/judge_unparsable"]) == (0.75, 0.25)
    assert metrics["seconds_judge_waiting"] == 2.0


def test_share_of_the_judging_that_was_hidden_is_that_of_its_time():
    made = experience(scored_group(0, [1], [2.0]))
    for overlapped, share in ((None, 0.0), (6.0, 0.75)):
        made.seconds |= {} if overlapped is None else {"judge_overlapped": overlapped}
        assert rollout_metrics(made)["frac_judge_hidden"] == share
    made.seconds.clear()
    assert "frac_judge_hidden" not in rollout_metrics(made)


def test_the_judge_costs_milliseconds_and_tokens_a_group():
    silent = experience(scored_group(0, [1], [2.0]))
    assert not [name for name in rollout_metrics(silent) if name.endswith("_a_group")]
    groups = [scored_group(0, [1], [2.0], tokens=100, attempts=1), scored_group(1, [1], [4.0])]
    metrics = rollout_metrics(replace(experience(*groups), judge_s=0.04))
    assert metrics["judge_ms_a_group"] == pytest.approx(20.0)
    assert metrics["judge_tokens_a_group"] == 50.0


def test_copies_are_counted_whatever_the_judge_and_only_where_there_can_be_any():
    plain = rolled_group(0, [2, 2, 2]).group
    copies = tuple(replace(candidate, translation="t0") for candidate in plain.candidates)
    equal = by_row_server(0, 0.5, 0.5, 0.5, group=replace(plain, candidates=copies))
    groups = [equal, by_row_server(1, 0.1, 0.2, 0.3)]
    assert rollout_metrics(experience(*groups))["frac_duplicate"] == 0.5
    assert "frac_duplicate" not in rollout_metrics(experience(by_row_server(0, 0.5)))


def test_rollout_in_which_nothing_was_scored_has_no_mean():
    metrics = rollout_metrics(experience(scored_group(0, [1, 1], [None, None])))
    assert math.isnan(metrics["reward_mean"])
    assert "score_mean" not in metrics
    assert metrics["frac_unscored"] == 1.0


def test_groups_that_dynamic_sampling_left_out_are_counted():
    kept, equal, failed = (scored_group(0, [1, 1], scores) for scores in ([2.0, 4.0], [3.0, 3.0], [None, None]))
    rollout = experience(kept)
    assert rollout_metrics(rollout)["frac_zero_variance"] == 0.0
    rollout.generated = [kept, equal, failed, kept]
    metrics = rollout_metrics(rollout)
    assert metrics["frac_zero_variance"] == 0.5
    assert (metrics["frac_unscored"], metrics["reward_mean"]) == (0.25, pytest.approx(0.3))


def test_groups_that_dynamic_sampling_left_out_are_in_the_dump_with_the_reason():
    scores = ([2.0, 4.0], [3.0, 3.0], [1.0, 2.0])
    kept, equal, spare = (scored_group(position, [1, 1], both) for position, both in enumerate(scores))
    rollout = experience(kept)
    rollout.generated = [kept, equal, spare]
    records = group_records(rollout, 7)
    assert [(r["group_id"], r["use"], r["signal"]) for r in records] == [
        ("0-0", "trained", "informative"),
        ("0-1", "rejected", "equal_scores"),
        ("0-2", "surplus", "informative"),
    ]
    assert [c["advantage"] is None for record in records for c in record["candidates"]] == [False] * 2 + [True] * 4
    assert [c["score"] for c in records[1]["candidates"]] == [3.0, 3.0]


def test_reasons_of_unreadable_replies_are_counted_among_all_replies_and_dumped():
    read = scored_group(0, [1, 1], [2.0, 4.0], attempts=2, rejections=("truncated",))
    unread = scored_group(1, [1, 1], [None, None], attempts=2, rejections=("missing_id", "truncated"))
    rollout = experience(read, unread)
    metrics = rollout_metrics(rollout)
    assert {name: share for name, share in metrics.items() if name.startswith("rejected/")} == {
        "rejected/missing_id": 0.25,
        "rejected/truncated": 0.5,
    }
    assert group_records(rollout, 1)[1]["verdict"]["rejections"] == ["missing_id", "truncated"]


def test_rewards_without_verdicts_are_not_called_unscored():
    metrics = rollout_metrics(experience(by_row_server(0, 0.25, 0.75)))
    assert metrics["frac_unscored"] == 0.0
    assert metrics["status/scored"] == 1.0
    assert metrics["reward_mean"] == 0.5
    assert "score_mean" not in metrics


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_rewards_without_verdicts_are_dumped_and_shown(tmp_path, file_format, capsys):
    from grrm.tracking.rollout_dump import RolloutDump

    record = RunRecord(None, RolloutDump(tmp_path, file_format), None, console_groups=1)
    record.rollout(1, lambda: group_records(experience(by_row_server(0, 0.25, 0.75)), 1))
    (dumped,) = read_rollouts(tmp_path)
    assert dumped["verdict"] is None
    assert [c["reward"] for c in dumped["candidates"]] == [0.25, 0.75]
    assert Counter((c["status"], c["score"]) for c in dumped["candidates"]) == {("scored", None): 2}
    assert "reward 0.250" in capsys.readouterr().out


def test_each_judge_of_a_mixture_is_logged_by_its_name():
    scored, late = (Status.SCORED, Status.SCORED), (Status.JUDGE_TIMEOUT, Status.JUDGE_TIMEOUT)
    verdicts = [
        mix(
            [
                PartVerdict("chrf", 1.0, "none", scored, (2.0, 4.0)),
                PartVerdict("grrm", 1.0, "none", scored, (9.0, 9.0)),
            ]
        ),
        mix(
            [
                PartVerdict("chrf", 1.0, "none", scored, (6.0, 8.0), fell_back=True),
                PartVerdict("grrm", 1.0, "none", late, (None, None), counts=False),
            ]
        ),
    ]
    assert part_metrics(verdicts) == {
        "part/chrf/score_mean": 5.0,
        "part/chrf/frac_left_out": 0.0,
        "part/chrf/frac_fell_back": 0.5,
        "part/grrm/score_mean": 9.0,
        "part/grrm/frac_left_out": 0.5,
        "part/grrm/frac_fell_back": 0.0,
        "part/grrm/status/judge_timeout": 0.5,
    }
