"""Numbers of a run for its report: facts, held-out results, training rewards, columns of metrics for charts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

Metrics = Sequence[Mapping[str, Any]]

HELD_OUT = (
    "eval_chrf_greedy",
    "eval_chrf",
    "eval_bleu_greedy",
    "eval_bleu",
    "eval_reward_greedy",
    "eval_reward",
    "eval_pair_accuracy",
    "eval_correlation",
    "eval_loss",
)
_ALARM = "eval_alarm/{}_change"  # a paired difference from the first evaluation, with the ends of its interval
_ALARM_LEVEL = 0.99
_WINDOW = 10  # steps at least at either end of a run whose rewards are compared
_NORMAL_95 = 1.96


def run_facts(metrics: Metrics, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return algorithm, model, judge, data, seconds, tokens per second and the like, as far as they are recorded."""
    seconds = sum(_values(metrics, "interval_runtime"))
    speeds = _values(metrics, "train_tokens_a_second")
    facts = {
        "algorithm": settings.get("rl_algorithm"),
        "loss": settings.get("policy_loss"),
        "model": settings.get("actor_model_name_or_path") or settings.get("model_name_or_path"),
        "judge": judge_of(settings),
        "train_data": settings.get("train_datasets"),
        "eval_data": settings.get("eval_datasets"),
        "prompts": settings.get("global_batch_size"),
        "samples": settings.get("rollout_n"),
        "learning_rate": settings.get("learning_rate"),
        "seed": settings.get("seed"),
        "steps": max((int(line["step"]) for line in metrics), default=None),
        "seconds": seconds or None,
        "tokens_a_second": statistics.median(speeds) if speeds else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def judge_of(settings: Mapping[str, Any]) -> str | None:
    """The source of the rewards, by the keys that name it; None where there is none.

    A server's judge has no name in the settings: its address tells runs apart.
    """
    if settings.get("use_rule_reward"):
        return f"rule {settings.get('rule_reward') or 'that each row names'}"
    if settings.get("use_rm_server"):
        return "reward server " + ", ".join(settings.get("reward_server") or ())
    if settings.get("reward_sources"):
        return ", ".join(map(_source, settings["reward_sources"]))
    if settings.get("reward_model_name_or_path"):
        return f"reward model {without_machine(settings['reward_model_name_or_path'])}"
    return settings.get("reward_judge")


def _source(source: Mapping[str, Any]) -> str:
    model, weight = source.get("model"), source.get("weight")
    of_model = f" {without_machine(str(model))}" if model else ""
    name = source.get("name") or source.get("judge") or "reward server"
    return f"{name}{of_model}{'' if weight is None else f' (weight {weight:g})'}"


def without_machine(path: str) -> str:
    """The end of an absolute path, whose beginning says nothing elsewhere; another as it is."""
    return str(Path(*Path(path).parts[-2:])) if Path(path).is_absolute() else path


def held_out(metrics: Metrics, verdict: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The first and the last evaluation of every held-out metric, each as step and value.

    `interval` has low end, high end and level of their difference where `verdict`, the run's verdict.json, or the
    metrics have one that belongs to it.
    """
    return [_change(metrics, key, verdict or {}) for key in HELD_OUT if _values(metrics, key)]


def training_reward(metrics: Metrics) -> dict[str, Any] | None:
    """Mean reward of training samples in the first and in the last tenth of the steps, at least ten of each.

    Single steps have other prompts and differ by far more than a policy moves in one. The interval at 95 % is of the
    difference of the two means, over logged steps. None where fewer than twice ten logged a reward.
    """
    lines = [line for line in metrics if _is_number(line.get("reward_mean"))]
    rewards, window = _values(lines, "reward_mean"), max(_WINDOW, len(lines) // 10)
    if len(rewards) < 2 * window:
        return None
    first, last = rewards[:window], rewards[-window:]
    before, after = statistics.fmean(first), statistics.fmean(last)
    spread = _NORMAL_95 * math.sqrt((statistics.variance(first) + statistics.variance(last)) / window)
    change = after - before
    steps = int(lines[-1]["step"]) - int(lines[-1 - window]["step"])  # of which only some may be logged
    return {"steps": steps, "first": before, "last": after, "interval": [change - spread, change + spread, 0.95]}


def metric_columns(metrics: Metrics) -> dict[str, list[list[float]]]:
    """Every logged number by its key: the steps, and the values with six digits."""
    columns: dict[str, list[list[float]]] = {}
    for line in metrics:
        for key, value in (*line.items(), *_pair_values(line)):
            if key not in ("step", "global_step") and _is_number(value):
                steps, values = columns.setdefault(key, [[], []])
                steps.append(int(line["step"]))
                values.append(float(f"{value:.6g}"))
    return columns


def _change(metrics: Metrics, key: str, verdict: Mapping[str, Any]) -> dict[str, Any]:
    lines = [line for line in metrics if _is_number(line.get(key))]
    first, last = lines[0], lines[-1]
    change = {"key": key, "first": [first["step"], first[key]], "last": [last["step"], last[key]]}
    interval = None if first is last else _verdict_interval(verdict, change) or _interval(first, last, key)
    return change | {"evaluations": len(lines), "interval": interval}


def _verdict_interval(verdict: Mapping[str, Any], change: Mapping[str, Any]) -> list[float] | None:
    """The interval of the verdict, if that is about the same two evaluations."""
    steps = [verdict.get("first_step"), verdict.get("last_step")]
    recorded = (verdict.get("changes") or {}).get(change["key"].removeprefix("eval_")) or {}
    bounds = [recorded.get("low"), recorded.get("high"), verdict.get("level")]
    is_same = steps == [change["first"][0], change["last"][0]]
    numbers = [bound for bound in bounds if _is_number(bound)]
    return numbers if is_same and len(numbers) == 3 else None


def _interval(first: Mapping[str, Any], last: Mapping[str, Any], key: str) -> list[float] | None:
    """The recorded interval of the paired difference, if it is about these two evaluations: a resumed run may compare
    with an earlier one. Else, from the intervals of both values, bounds that are wider than an interval of 95 %."""
    name = _ALARM.format(key.removeprefix("eval_"))
    recorded = [value for end in ("", "_low", "_high") if _is_number(value := last.get(f"{name}{end}"))]
    if len(recorded) == 3 and abs(recorded[0] - (last[key] - first[key])) < 1e-6:
        return [*recorded[1:], _ALARM_LEVEL]
    bounds = [line.get(f"{key}_{end}") for line in (last, first) for end in ("low", "high")]
    numbers = [bound for bound in bounds if _is_number(bound)]
    return None if len(numbers) < 4 else [numbers[0] - numbers[3], numbers[1] - numbers[2], 0.95]


def _pair_values(line: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Held-out metrics of language pairs under names of their own; recorded are value, low and high end."""
    pairs = line.get("eval_language_pairs") or {}
    return [
        (f"eval_{name}/{pair}", value[0] if isinstance(value, list) else value)
        for pair, metrics in pairs.items()
        for name, value in metrics.items()
    ]


def _values(metrics: Metrics, key: str) -> list[float]:
    return [float(line[key]) for line in metrics if _is_number(line.get(key))]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
