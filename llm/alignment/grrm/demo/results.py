"""Reads what the stages left behind, and sums it up over seeds."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from grrm.demo.settings import BASE, CHOICE, GRPO, GRPO_RANKER, JUDGES, RANKER, RANKERS, SFT, Settings
from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.text_metrics import chrf_difference
from grrm.tracking.metrics_log import read_metrics

INTERVALS = ("accuracy", "correlation", "tie_calibrated_accuracy", "kendall_tau_b")
RANKINGS, RANKING_FILE = "eval-judges", "ranking.json"  # the folder of what was measured of the judges
_PACKAGES = ("paddle-grrm", "paddlepaddle", "paddlenlp", "sacrebleu", "babel", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True)
class Results:
    """The demo's results: per policy the scores of every seed that has any, per run the metrics of every seed.

    `rankings` has per seed what `evaluate_judges` measured, by judge and file of groups; `chosen` which ranker judged.
    """

    settings: Settings
    seconds: Mapping[str, float]
    scores: Mapping[str, Mapping[int, dict[str, Any]]]
    metrics: Mapping[str, Mapping[int, list[dict[str, Any]]]]
    rankings: Mapping[int, dict[str, Any]]
    chosen: Mapping[int, str]


def seed_folder(out: Path, seed: int) -> Path:
    """The folder of everything that depends on the seed."""
    return out / f"seed{seed}"


def scores_file(out: Path, seed: int, policy: str) -> Path:
    """The evaluation of one policy."""
    return seed_folder(out, seed) / f"eval-{policy}" / "scores.json"


def load_results(out: Path, settings: Settings, seconds: Mapping[str, float], policies: Sequence[str] = ()) -> Results:
    """Results of the policies, by default of those that the settings train: others are of runs with other settings.

    What has not been run or logged is simply absent. ValueError on damaged files.
    """
    policies = policies or (BASE, SFT, *settings.rl_runs)
    scores: dict[str, dict[int, dict[str, Any]]] = {policy: {} for policy in policies}
    metrics: dict[str, dict[int, list[dict[str, Any]]]] = {run: {} for run in (SFT, *RANKERS, *settings.rl_runs)}
    rankings: dict[int, dict[str, Any]] = {}
    chosen: dict[int, str] = {}
    for seed in settings.seeds:
        for policy in policies:
            path = scores_file(out, seed, policy)
            if path.exists():
                scores[policy][seed] = json.loads(path.read_text(encoding="utf-8"))
        for run, by_seed in metrics.items():
            if records := read_metrics(seed_folder(out, seed) / run):
                by_seed[seed] = records
        if GRPO_RANKER not in settings.rl_runs:
            continue
        if (path := seed_folder(out, seed) / RANKINGS / RANKING_FILE).exists():
            rankings[seed] = json.loads(path.read_text(encoding="utf-8"))
        if (path := seed_folder(out, seed) / RANKER / CHOICE).exists():
            chosen[seed] = json.loads(path.read_text(encoding="utf-8"))["chosen"]
    return Results(settings, seconds, scores, metrics, rankings, chosen)


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds; `sd` is None below two seeds: one value has no spread."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": sd, "seeds": len(values), "values": list(values)}


def show_figure(figure: Mapping[str, Any] | None, scale: float = 1.0, digits: int = 1) -> str:
    """A mean with its spread: "61.3 ± 0.4", or "61.3" for one seed, or a dash for none."""
    if figure is None:
        return "–"
    mean = f"{figure['mean'] * scale:.{digits}f}"
    return mean if figure["sd"] is None else f"{mean} ± {figure['sd'] * scale:.{digits}f}"


def policy_figures(results: Results, decoding: str, field: str) -> dict[str, dict[str, Any]]:
    """`over_seeds` of one field of the scores ("sampled" or "greedy") for every policy; of an interval the mean."""

    def number(scores: Mapping[str, Any]) -> float:
        value = scores[decoding][field]
        return float(value["mean"] if isinstance(value, Mapping) else value)

    return _of_policies(results, number)


def _of_policies(results: Results, number: Callable[[Mapping[str, Any]], float | None]) -> dict[str, dict[str, Any]]:
    """`over_seeds` of a number for every policy that has scores with it."""
    numbers = {
        policy: [value for seed in sorted(by_seed) if (value := number(by_seed[seed])) is not None]
        for policy, by_seed in results.scores.items()
    }
    return {policy: over_seeds(values) for policy, values in numbers.items() if values}


def ranking_figures(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """By judge and file of groups: `over_seeds` of what was measured, None where a number is not defined.

    With one seed, accuracy and correlation have their 95 % `interval` over groups.
    """
    records = [results.rankings[seed] for seed in sorted(results.rankings)]
    names = [name for name in JUDGES if records and all(name in record for record in records)]
    return {
        name: {of_set: _of_set([record[name][of_set] for record in records]) for of_set in records[0][name]}
        for name in names
    }


def _of_set(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = {key: _interval_figure([of_seed[key] for of_seed in seeds]) for key in INTERVALS}
    plain = {key: over_seeds([of_seed[key] for of_seed in seeds]) for key in ("tied", "milliseconds_a_group")}
    return figures | plain


def _interval_figure(intervals: Sequence[Mapping[str, float] | None]) -> dict[str, Any] | None:
    defined = [interval for interval in intervals if interval is not None]
    if len(defined) < len(intervals):
        return None
    bounds = [defined[0]["low"], defined[0]["high"]] if len(defined) == 1 else None
    return {**over_seeds([interval["mean"] for interval in defined]), "interval": bounds}


def verdict(results: Results, run: str) -> dict[str, Any]:
    """Did RL teach anything? Corpus chrF after it minus that of SFT, sampled and greedy.

    `gains` are those of the seeds, each against the SFT policy it started from; `gain` is their mean, with its 95 %
    `interval` over texts, and `sd` their standard deviation. `above_spread`: the mean is more than twice that, None
    with fewer than two seeds, because then the spread is not known.

    `share_of_metric`: of what GRPO against the metric
    gains, None where that gains nothing. `greedy_not_below` goes by the mean alone; `greedy_interval` says how much
    of it the texts are enough to tell.
    """
    sampled, greedy = (_gains(results, run, decoding) for decoding in ("sampled", "greedy"))
    of_texts, of_greedy = (_difference(results, run, decoding) for decoding in ("sampled", "greedy"))
    figure = over_seeds(sampled)
    of_metric = statistics.fmean(_gains(results, GRPO, "sampled")) if _has_seeds_of_sft(results, GRPO) else 0.0
    return {
        "gains": sampled,
        "gain": figure["mean"],
        "interval": [of_texts.low, of_texts.high],
        "sd": figure["sd"],
        "above_spread": None if figure["sd"] is None else figure["mean"] > 2 * figure["sd"],
        "share_of_metric": figure["mean"] / of_metric if of_metric > 0 else None,
        "greedy_gains": greedy,
        "greedy_gain": of_greedy.mean,
        "greedy_interval": [of_greedy.low, of_greedy.high],
        "greedy_not_below": of_greedy.mean >= 0,
    }


def _gains(results: Results, run: str, decoding: str) -> list[float]:
    before, after = results.scores[SFT], results.scores[run]
    return [after[seed][decoding]["chrf"] - before[seed][decoding]["chrf"] for seed in sorted(before)]


def _difference(results: Results, run: str, decoding: str) -> Interval:
    """By how much a run's corpus chrF is above SFT's, mean over seeds and samples, with its interval over texts."""
    before, after = (
        [texts for seed in sorted(by_seed) for texts in _texts(by_seed[seed]["examples"], decoding)]
        for by_seed in (results.scores[SFT], results.scores[run])
    )
    references = [row["reference"] for row in next(iter(results.scores[SFT].values()))["examples"]]
    return chrf_difference(before, after, references)


def _texts(examples: Sequence[Mapping[str, Any]], decoding: str) -> list[list[str | None]]:
    """A policy's outputs for all rows: one list, or one for each sample."""
    if decoding == "greedy":
        return [[row["greedy"] for row in examples]]
    return [list(texts) for texts in zip(*(row["sampled"] for row in examples), strict=True)]


def summarise(results: Results) -> dict[str, Any]:
    """The content of summary.json.

    `chrf` is the corpus chrF of samples at temperature 1, `chrf_greedy` that of greedy decoding; `chrf_sentence` and
    `chrf_sentence_greedy` are means over sentences; all from 0 to 100. `ranking` is empty unless rankers were trained.
    """
    complete = [run for run in results.settings.rl_runs if _has_seeds_of_sft(results, run)]
    return {
        **{
            f"{field}{ending}": policy_figures(results, decoding, field)
            for field in ("chrf", "chrf_sentence", "exact_match")
            for decoding, ending in (("sampled", ""), ("greedy", "_greedy"))
        },
        "response_length": policy_figures(results, "sampled", "length_mean"),
        "unparsable": policy_figures(results, "sampled", "unparsable"),
        "kl_to_sft": _of_policies(results, lambda scores: scores.get("kl_to_reference")),
        "ranking": ranking_figures(results),
        "chosen_ranker": {str(seed): name for seed, name in results.chosen.items()},
        "learned": {name: verdict(results, name) for name in complete},
        "seconds": {name: round(spent_s, 2) for name, spent_s in results.seconds.items()},
        "settings": asdict(results.settings),
        "signatures": _signatures(results),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape the figures; "not installed" where one is missing."""
    versions_of = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions_of[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_of[name] = "not installed"
    return versions_of


def mean_curve(by_seed: Mapping[int, list[dict[str, Any]]], key: str) -> dict[int, list[float]]:
    """Step -> the finite values of `key`, one per seed that logged it; steps in order, empty when nobody did."""
    values: dict[int, list[float]] = {}
    for records in by_seed.values():
        for record in records:
            value = record.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(int(record["step"]), []).append(float(value))
    return dict(sorted(values.items()))


def _has_seeds_of_sft(results: Results, run: str) -> bool:
    of_sft = results.scores.get(SFT, {})
    return bool(of_sft) and of_sft.keys() == results.scores.get(run, {}).keys()


def _signatures(results: Results) -> dict[str, str]:
    for by_seed in results.scores.values():
        for scores in by_seed.values():
            return dict(scores["signatures"])
    return {}
