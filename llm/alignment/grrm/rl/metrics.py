"""Metrics of a step: of the rollout, equal on every rank without a collective, and of the loss, averaged over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from grrm.evaluation.text_metrics import duplicate_share
from grrm.gqm.groups import PartVerdict, Verdict
from grrm.parallel.data_ranks import DataRanks
from grrm.parallel.pipeline_ranks import of_last_stage
from grrm.rewards.group_filter import zero_variance_metrics
from grrm.rl.experience import mean_reward
from grrm.rl.experience_maker import Experience
from grrm.rl.losses.aggregation import merge_metrics
from grrm.rl.records import Scored

Gap = tuple[float, float, float]


def logprob_gap(logprobs_RT: paddle.Tensor, engine_RT: paddle.Tensor, mask_RT: paddle.Tensor) -> Gap:
    """Sum and maximum of |trainer - engine| log-probability over valid tokens, and their number.

    Both belong to the sampling policy, so this is the mismatch between the two forward passes; with `rollout_ahead`
    it includes one update.
    """
    gap_RT = paddle.abs(logprobs_RT.detach() - engine_RT) * mask_RT
    return float(gap_RT.sum()), float(gap_RT.max()), float(mask_RT.sum())


def merge_gaps(gaps: Sequence[Gap]) -> Gap:
    """The gap over all tokens from the gaps of parts; zeros for none."""
    return sum(gap[0] for gap in gaps), max((gap[1] for gap in gaps), default=0.0), sum(gap[2] for gap in gaps)


class StepMetrics:
    """Loss metrics, which are shares that add up over micro-batches and ranks, averaged over optimizer steps.

    The mean is over the steps that have the metric: those of a critic's warm-up have none of the policy's. `set` values
    belong to the rollout, are equal on every rank, and are passed through. `in_stages` says that only the last stage of
    a pipeline adds any.
    """

    def __init__(self, ranks: DataRanks, micro_batches_per_update: int, in_stages: bool = False) -> None:
        self._in_stages = in_stages
        self.ranks, self.micro_batches_per_update = ranks, micro_batches_per_update
        self._rollout: dict[str, float] = {}
        self._clear()

    def _clear(self) -> None:
        self._shares: list[Mapping[str, float]] = []
        self._gaps: list[Gap] = []
        self._n_micro_batches = 0
        self._updates: dict[str, set[int]] = {}

    def set(self, metrics: dict[str, float]) -> None:
        """Replace the rollout's metrics."""
        self._rollout = dict(metrics)

    def add(self, metrics: Mapping[str, Any], gap: Gap) -> None:
        """Add one micro-batch's loss metrics and its `logprob_gap`."""
        self.share(metrics)
        self._gaps.append(gap)
        self._n_micro_batches += 1

    def share(self, metrics: Mapping[str, Any]) -> None:
        """Add further metrics of the micro-batch that is added next."""
        self._shares.append({name: float(value) for name, value in metrics.items()})
        for name in metrics:
            self._updates.setdefault(name, set()).add(self._n_micro_batches // self.micro_batches_per_update)

    def collect(self) -> dict[str, float]:
        """Everything added since the last call, over all ranks. A collective: every rank must call it."""
        own = (merge_metrics(self._shares), self._gaps, self._updates)
        own = of_last_stage(own) if self._in_stages else own
        parts = self.ranks.gather(own)
        self._clear()
        merged = merge_metrics([part[0] for part in parts])
        total, largest, n_tokens = merge_gaps([gap for part in parts for gap in part[1]])
        n_updates = {name: len(set().union(*(part[2].get(name, ()) for part in parts))) for name in merged}
        return {
            **self._rollout,
            **{name: value if name.endswith("_max") else value / n_updates[name] for name, value in merged.items()},
            "logprob_gap_mean": total / max(n_tokens, 1.0),
            "logprob_gap_max": largest,
        }


def rollout_metrics(experience: Experience) -> dict[str, float]:
    """Rewards (NaN where there are none), scores, measures, lengths, statuses and zero-variance groups.

    There is no `score_mean` without scores: of a judge that only ranks, or a server of the row protocol, which gives
    rewards and no verdicts, so that every row is scored.
    Statuses, unparsable replies of the judge and zero-variance groups are counted over all generated groups, the rest
    over the groups used for training: dynamic sampling rejects groups with equal rewards.

    `frac_duplicate` is the share of a group's samples behind its first that repeat an earlier one, whatever the judge.
    """
    groups = experience.groups
    reward_mean, reward_std = mean_reward(groups)
    rolled = [scored.rolled for scored in groups]
    verdicts = _verdicts(groups)
    scores = [score for verdict in verdicts for score in verdict.scores if score is not None]
    lengths = [len(tokens) for group in rolled for tokens in group.token_ids]
    reasons = [reason for group in rolled for reason in group.finish_reasons]
    generated = experience.generated or groups
    shaped = [scored.shaped for scored in generated]
    statuses = Counter(status for rewards in shaped for status in rewards.statuses)
    versions = [version for group in rolled for version in group.weight_versions]
    repeated = duplicate_share([[sample.translation for sample in scored.rolled.group.candidates] for scored in groups])
    n_rows = max(sum(statuses.values()), 1)
    n_scored = sum(count for status, count in statuses.items() if status.is_scored)
    return {
        "reward_mean": reward_mean,
        "reward_std": reward_std,
        **_mean("score_mean", scores),
        **_measure_means(groups),
        **part_metrics(verdicts),
        **source_metrics(groups),
        "response_length_mean": float(np.mean(lengths)),
        "response_length_max": float(np.max(lengths)),
        **({} if repeated is None else {"frac_duplicate": repeated}),
        **({"rollout_weights_step": float(min(versions))} if versions else {}),
        "frac_truncated": reasons.count("length") / len(reasons),
        "frac_unscored": 1.0 - n_scored / n_rows,
        "generation_batches": float(experience.generations),
        **zero_variance_metrics(shaped),
        **{f"status/{status.value}": count / n_rows for status, count in sorted(statuses.items())},
        **_rejected_shares(generated),
        **_judge_cost(generated, experience.judge_s),
        **{f"seconds_{phase}": seconds for phase, seconds in experience.seconds.items()},
        **_hidden_share(experience.seconds),
        **experience.value_fit,
    }


def _verdicts(groups: Sequence[Scored]) -> list[Verdict]:
    return [scored.judged.verdict for scored in groups if scored.judged.verdict is not None]


def _judge_cost(groups: Sequence[Scored], judge_s: float | None) -> dict[str, float]:
    """Means over groups: `judge_ms_a_group`, and `judge_tokens_a_group` where the judge generates any."""
    verdicts = _verdicts(groups)
    tokens = [float(verdict.tokens) for verdict in verdicts]
    return {
        **({} if judge_s is None else {"judge_ms_a_group": 1e3 * judge_s / len(groups)}),
        **(_mean("judge_tokens_a_group", tokens) if any(verdict.attempts for verdict in verdicts) else {}),
    }


def _hidden_share(seconds: Mapping[str, float]) -> dict[str, float]:
    """`frac_judge_hidden`: share of judging time that was overlapped with other work of this rank."""
    hidden, waited = seconds.get("judge_overlapped", 0.0), seconds.get("judge_waiting", 0.0)
    return {"frac_judge_hidden": hidden / (hidden + waited)} if hidden + waited else {}


def _measure_means(groups: Sequence[Scored]) -> dict[str, float]:
    """`NAME_mean` of every measure of the reward stage, over the samples that have it."""
    measures = [scored.judged.measures for scored in groups]
    metrics: dict[str, float] = {}
    for name in sorted({name for of_group in measures for name in of_group}):
        values = [value for of_group in measures for value in of_group.get(name, ()) if value is not None]
        metrics |= _mean(f"{name}_mean", values)
    return metrics


def part_metrics(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Of each judge of a mixture, by its name: `part/NAME/score_mean` of its own scores, if it gave any, the shares
    of groups that it did not count in (`frac_left_out`) and that its fallback answered for (`frac_fell_back`), and the
    share of candidates with each status that carries no score. Nothing without a mixture."""
    columns: dict[str, list[PartVerdict]] = {}
    for verdict in verdicts:
        for part in verdict.parts:
            columns.setdefault(part.name, []).append(part)
    metrics: dict[str, float] = {}
    for name, parts in columns.items():
        statuses = Counter(status for part in parts for status in part.statuses)
        n_candidates = max(sum(statuses.values()), 1)
        metrics |= {
            **_mean(f"part/{name}/score_mean", [score for part in parts for score in part.scores if score is not None]),
            f"part/{name}/frac_left_out": sum(not part.counts for part in parts) / len(parts),
            f"part/{name}/frac_fell_back": sum(part.fell_back for part in parts) / len(parts),
            **{
                f"part/{name}/status/{status.value}": count / n_candidates
                for status, count in sorted(statuses.items())
                if not status.is_scored
            },
        }
    return metrics


def source_metrics(groups: Sequence[Scored]) -> dict[str, float]:
    """Of each data source of a run with several kinds of rows, by its name: its share of the groups
    (`data/NAME/frac_groups`), the mean reward, the share of samples without a score, and the mean length in tokens."""
    by_source: dict[str, list[Scored]] = {}
    for scored in groups:
        if source := scored.rolled.group.task.data_source:
            by_source.setdefault(source, []).append(scored)
    metrics: dict[str, float] = {}
    for name, members in sorted(by_source.items()):
        statuses = [status for scored in members for status in scored.shaped.statuses]
        lengths = [float(len(tokens)) for scored in members for tokens in scored.rolled.token_ids]
        metrics |= {
            f"data/{name}/frac_groups": len(members) / len(groups),
            f"data/{name}/reward_mean": mean_reward(members)[0],
            **_mean(f"data/{name}/frac_unscored", [float(not status.is_scored) for status in statuses]),
            **_mean(f"data/{name}/response_length_mean", lengths),
        }
    return metrics


def _rejected_shares(groups: Sequence[Scored]) -> dict[str, float]:
    """`rejected/REASON`: share of the judge's replies that could not be parsed for that reason."""
    verdicts = _verdicts(groups)
    n_replies = sum(verdict.attempts for verdict in verdicts)
    reasons = Counter(reason for verdict in verdicts for reason in verdict.rejections)
    return {f"rejected/{reason}": count / n_replies for reason, count in sorted(reasons.items())}


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    """The mean as metric `name`; no metric without values."""
    return {name: float(np.mean(values))} if values else {}
