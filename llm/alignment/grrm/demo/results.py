"""Reads what the stages left behind, and sums it up over seeds."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from grrm.demo.settings import POLICIES, SFT, TERMS, DemoSettings
from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.chrf_difference import chrf_difference
from grrm.tracking.metrics_log import read_metrics

_PACKAGES = ("paddle-grrm", "paddlepaddle", "paddlenlp", "sacrebleu", "babel", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True)
class Results:
    """The demo's results: per policy the scores of every seed that has any, per run the metrics of every seed.

    `rankings` has per seed what `evaluate_judges` measured, by judge ("gqm.sft") and set of groups.
    """

    settings: DemoSettings
    seconds: Mapping[str, float]
    scores: Mapping[str, Mapping[int, dict[str, Any]]]
    metrics: Mapping[str, Mapping[int, list[dict[str, Any]]]]
    rankings: Mapping[int, dict[str, Any]]


def seed_folder(out: Path, seed: int) -> Path:
    """Where everything that depends on the seed lies."""
    return out / f"seed{seed}"


def scores_file(out: Path, seed: int, policy: str) -> Path:
    """The evaluation of one policy."""
    return seed_folder(out, seed) / f"eval-{policy}" / "scores.json"


def rankings_file(out: Path, seed: int) -> Path:
    """The ranking accuracies of the judges."""
    return seed_folder(out, seed) / "eval-judges" / "ranking.json"


def load_results(out: Path, settings: DemoSettings, seconds: Mapping[str, float]) -> Results:
    """Everything that is there; what has not been run or logged is simply absent. ValueError on damaged files."""
    scores: dict[str, dict[int, dict[str, Any]]] = {policy: {} for policy in POLICIES}
    metrics: dict[str, dict[int, list[dict[str, Any]]]] = {run: {} for run in (SFT, *settings.rl_runs)}
    rankings: dict[int, dict[str, Any]] = {}
    for seed in settings.seeds:
        for policy in POLICIES:
            path = scores_file(out, seed, policy)
            if path.exists():
                scores[policy][seed] = json.loads(path.read_text(encoding="utf-8"))
        for run, by_seed in metrics.items():
            if records := read_metrics(seed_folder(out, seed) / run):
                by_seed[seed] = records
        if (path := rankings_file(out, seed)).exists():
            rankings[seed] = json.loads(path.read_text(encoding="utf-8"))
    return Results(settings, seconds, scores, metrics, rankings)


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds; `sd` is None below two seeds: one value has no spread."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": sd, "seeds": len(values), "values": list(values)}


def policy_figures(results: Results, decoding: str, field: str) -> dict[str, dict[str, Any]]:
    """`over_seeds` of one field of the scores ("sampled" or "greedy") for every policy that was evaluated."""
    return {
        policy: over_seeds([by_seed[seed][decoding][field] for seed in sorted(by_seed)])
        for policy, by_seed in results.scores.items()
        if by_seed
    }


def terms_figures(results: Results, decoding: str) -> dict[str, dict[str, Any]]:
    """`over_seeds` of the corpus chrF on terms, for every policy that was evaluated on them."""
    measured = {
        policy: [
            by_seed[seed]["extra"][TERMS][decoding]["chrf"] for seed in sorted(by_seed) if _has_terms(by_seed[seed])
        ]
        for policy, by_seed in results.scores.items()
    }
    return {policy: over_seeds(values) for policy, values in measured.items() if values}


def kl_figures(results: Results) -> dict[str, dict[str, Any]]:
    """`over_seeds` of the KL divergence to the SFT policy, nats per sampled token, where it was measured."""
    measured = {
        policy: [by_seed[seed]["kl_to_reference"] for seed in sorted(by_seed) if "kl_to_reference" in by_seed[seed]]
        for policy, by_seed in results.scores.items()
    }
    return {policy: over_seeds(values) for policy, values in measured.items() if values}


def ranking_figures(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """By judge and training step: `over_seeds` of the ranking accuracy on the policy's own samples, ties wrong.

    The same lies under `on_policy` and, for groups of mixed quality, `mixed`, with `ties_half`, `tied` and
    `zero_variance` beside it.
    """
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    records = [results.rankings[seed] for seed in sorted(results.rankings)]
    for name in records[0] if records else ():
        kind, _, step = name.partition(".")
        of_sets = {of_set: _of_set([record[name][of_set] for record in records]) for of_set in records[0][name]}
        figures.setdefault(kind, {})[step] = {**of_sets["on_policy"], **of_sets}
    return figures


def _of_set(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **over_seeds([one["accuracy"]["mean"] for one in found]),
        "interval": [found[0]["accuracy"]["low"], found[0]["accuracy"]["high"]] if len(found) == 1 else None,
        "ties_half": statistics.fmean(one["accuracy_ties_half"]["mean"] for one in found),
        "tied": statistics.fmean(one["tied"] for one in found),
        "zero_variance": statistics.fmean(one["zero_variance"] for one in found),
        "unscored": statistics.fmean(1 - one["coverage"] for one in found),
    }


def verdict(sft: Mapping[str, Any], trained: Mapping[str, Any], greedy: Interval) -> dict[str, Any]:
    """Did RL teach anything? `gain` is the rise of sampled chrF, `greedy_gain` that of greedy decoding's.

    `spread` is the larger of the two standard deviations of sampled chrF over seeds.
    `above_spread` is None with fewer than two seeds, because then the spread is not known.
    `greedy_not_below` goes by the mean alone; `greedy_interval` says how much of it the texts are enough to tell.
    """
    spreads = [figure["sd"] for figure in (sft, trained) if figure["sd"] is not None]
    gain = trained["mean"] - sft["mean"]
    spread = max(spreads) if len(spreads) == 2 else None
    return {
        "gain": gain,
        "spread": spread,
        "above_spread": None if spread is None else gain > spread,
        "above_in_every_seed": all(
            after > before for before, after in zip(sft["values"], trained["values"], strict=True)
        ),
        "greedy_gain": greedy.mean,
        "greedy_interval": [greedy.low, greedy.high],
        "greedy_not_below": greedy.mean >= 0,
    }


def summarise(results: Results) -> dict[str, Any]:
    """The content of summary.json.

    `chrf` is the corpus chrF of samples at temperature 1, `chrf_greedy` that of greedy decoding; `chrf_sentence` and
    `chrf_sentence_greedy` are means over sentences; `chrf_terms` and `chrf_terms_greedy` are corpus chrF on the corpus
    that nothing was trained on; all from 0 to 100. `ranking_accuracy` is empty unless judges were trained.
    """
    chrf, greedy = policy_figures(results, "sampled", "chrf"), policy_figures(results, "greedy", "chrf")
    complete = [run for run in results.settings.rl_runs if _same_seeds(results, SFT, run)]
    return {
        "chrf": chrf,
        "chrf_greedy": greedy,
        "chrf_terms": terms_figures(results, "sampled"),
        "chrf_terms_greedy": terms_figures(results, "greedy"),
        "chrf_sentence": _sentence_figures(results, "sampled"),
        "chrf_sentence_greedy": _sentence_figures(results, "greedy"),
        "exact_match": policy_figures(results, "sampled", "exact_match"),
        "exact_match_greedy": policy_figures(results, "greedy", "exact_match"),
        "response_length": policy_figures(results, "sampled", "length_mean"),
        "unparsable": policy_figures(results, "sampled", "unparsable"),
        "kl_to_sft": kl_figures(results),
        "ranking_accuracy": ranking_figures(results),
        "learned": {name: verdict(chrf[SFT], chrf[name], _greedy_gain(results, name)) for name in complete},
        "seconds": {name: round(spent_s, 2) for name, spent_s in results.seconds.items()},
        "settings": asdict(results.settings),
        "signatures": _signatures(results),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape the figures; "not installed" where one is missing."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def mean_curve(by_seed: Mapping[int, list[dict[str, Any]]], key: str) -> dict[int, list[float]]:
    """Step -> the finite values of `key`, one per seed that logged it; steps in order, empty when nobody did."""
    values: dict[int, list[float]] = {}
    for records in by_seed.values():
        for record in records:
            value = record.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(int(record["step"]), []).append(float(value))
    return dict(sorted(values.items()))


def _has_terms(scores: Mapping[str, Any]) -> bool:
    return TERMS in scores.get("extra", {})


def _sentence_figures(results: Results, decoding: str) -> dict[str, Any]:
    return {
        policy: over_seeds([by_seed[seed][decoding]["chrf_sentence"]["mean"] for seed in sorted(by_seed)])
        for policy, by_seed in results.scores.items()
        if by_seed
    }


def _greedy_gain(results: Results, run: str) -> Interval:
    """By how much greedy decoding's corpus chrF rises over SFT's, mean over seeds, with its interval over texts."""
    before, after = (
        [[row["greedy"] for row in by_seed[seed]["examples"]] for seed in sorted(by_seed)]
        for by_seed in (results.scores[SFT], results.scores[run])
    )
    references = [row["reference"] for row in next(iter(results.scores[SFT].values()))["examples"]]
    return chrf_difference(before, after, references)


def _same_seeds(results: Results, one: str, other: str) -> bool:
    return bool(results.scores[one]) and results.scores[one].keys() == results.scores[other].keys()


def _signatures(results: Results) -> dict[str, str]:
    for by_seed in results.scores.values():
        for scores in by_seed.values():
            return dict(scores["signatures"])
    return {}
