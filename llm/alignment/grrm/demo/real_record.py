"""Results of `make real` as records that tables and figures are made from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grrm.demo.real_plan import PARTS, RealPlan
from grrm.demo.real_settings import HALVES, RealSettings
from grrm.demo.results import RANKING_FILE, Results, load_results, scores_file, seed_folder, verdict, versions
from grrm.demo.settings import SFT, STOCK
from grrm.demo.similarity import SIMILARITY_FILE
from grrm.demo.stages import Marks, fingerprint_of
from grrm.evaluation.bootstrap import bootstrap_interval
from grrm.evaluation.meta_metrics import correlation
from grrm.evaluation.ranking import JudgedGroup, accuracy_difference, score_ranking
from grrm.evaluation.text_metrics import sentence_chrfs
from grrm.tracking.metrics_log import read_metrics
from grrm.tracking.rollout_dump import read_rollouts

BASE = "sqm_expected"  # the judge that the others are compared with: it writes, and sees candidates one by one
EVERY_STEPS = 4  # of a policy's training, for how its judge follows gold
REWARD = "reward_mean"
CURVES = (REWARD, "kl", "eval_reward", "eval_reward_greedy", "eval_chrf", "eval_chrf_greedy")


def judges_record(plan: RealPlan, seconds: Mapping[str, float], stale: Set[Path]) -> dict[str, Any]:
    """By seed: the scores of the policy that is judged, how each judge ranks, and the rewards of RLVR.

    Without the `stale_results`.
    """
    seeds = {}
    for seed in plan.settings.seeds:
        folder = seed_folder(plan.out, seed)
        paths = (folder / part / RANKING_FILE for part in PARTS)
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists() and path not in stale]
        scores = _results(plan, seed, (STOCK, SFT), stale).scores
        rlvr = [] if plan.layout.weights("gqm", seed)[0] in stale else read_metrics(folder / "gqm")
        seeds[str(seed)] = {
            "policies": {
                name: _figures(by_seed[seed], folder, name, stale) for name, by_seed in scores.items() if by_seed
            },
            "judges": _judges({name: of_sets for part in parts for name, of_sets in part.items()}),
            "rlvr": _curve(rlvr, REWARD),
        }
    return _record(plan, seconds, seeds)


def stale_results(plan: RealPlan) -> set[Path]:
    """The results in the folder whose stages would run again, as they were made with other settings or inputs.

    Policies that the plan does not train are looked at, too. A result without the mark of a stage is taken as it is.
    """
    with_all = replace(plan, settings=replace(plan.settings, arms=_all_arms(plan)))
    marks = Marks(plan.out / "stages")
    stale = set()
    for stage in with_all.stages(HALVES):
        path, mark = stage.outputs[0], marks.done(stage.name)
        if mark is None or not (path.suffix == ".json" or stage.name.endswith("/gqm")):
            continue
        try:
            is_same = mark.fingerprint == fingerprint_of(stage, plan.layout.placeholders)
        except FileNotFoundError:  # an input is being made again
            is_same = False
        if not is_same:
            stale.add(path)
    return stale


def _all_arms(plan: RealPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*RealSettings().arms, *plan.settings.arms)))  # earlier runs may have made others


def _judges(record: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The figures of each judge on each set of groups, with those that count a pair without a score as half.

    `all_pairs` is the share in order of all pairs, `above_base` what it is more than the share of `BASE`, the same
    groups resampled for both.
    """
    judges: dict[str, dict[str, Any]] = {}
    for name, of_sets in record.items():
        for of_set, figures in of_sets.items():
            own = _groups(figures)
            of_base = [] if name == BASE else _groups(record.get(BASE, {}).get(of_set, {}))
            more = accuracy_difference(of_base, own, ties="half", unscored="half") if of_base and own else None
            pairs = score_ranking(own, ties="half", unscored="half").accuracy if own else None
            compared = {"all_pairs": pairs and asdict(pairs), "above_base": more and asdict(more)}
            without = {key: value for key, value in figures.items() if key != "scores"}
            judges.setdefault(name, {})[of_set] = without | compared
    return judges


def _groups(figures: Mapping[str, Any]) -> list[JudgedGroup]:
    return [JudgedGroup("all", gold, judged) for gold, judged in figures.get("scores", ())]


def policies_record(plan: RealPlan, seconds: Mapping[str, float], stale: Set[Path]) -> dict[str, Any]:
    """By seed and policy: its scores, what it gained over SFT, its curves, and how its judge followed gold.

    Without the `stale_results`.
    """
    seeds, arms = {}, _all_arms(plan)
    for seed in plan.settings.seeds:
        results = _results(plan, seed, (SFT, *arms), stale)
        folder, of_sft = seed_folder(plan.out, seed), results.scores[SFT]
        runs = [run for run in arms if of_sft and results.scores[run]]
        trained = {run: _policy(results, folder / run, run, seed, stale) for run in runs}
        before = {SFT: {"scores": _figures(of_sft[seed], folder, SFT, stale)}} if of_sft else {}
        seeds[str(seed)] = {"policies": before | trained}
    return _record(plan, seconds, seeds)


def _record(plan: RealPlan, seconds: Mapping[str, float], seeds: Mapping[str, Any]) -> dict[str, Any]:
    settings = asdict(plan.settings) | {"model_wheel": "", "corpus_wheel": ""}
    return {"seeds": seeds, "settings": settings, "seconds": dict(seconds), "versions": versions()}


def _results(plan: RealPlan, seed: int, policies: tuple[str, ...], stale: Set[Path]) -> Results:
    results = load_results(plan.out, replace(plan.settings, n_seeds=1, first_seed=seed), {}, policies)
    scores = {name: {} if scores_file(plan.out, seed, name) in stale else own for name, own in results.scores.items()}
    return replace(results, scores=scores)


def _figures(scores: Mapping[str, Any], folder: Path, policy: str, stale: Set[Path]) -> dict[str, Any]:
    figures = {name: value for name, value in scores.items() if name != "examples"}
    rows = {name: _similarity(folder, name, stale) for name in (SFT, policy)}
    for decoding, values in rows[policy].items():
        figures[decoding] = figures[decoding] | {"similarity": statistics.fmean(values)}
        if policy != SFT and rows[SFT]:
            gains = [after - before for before, after in zip(rows[SFT][decoding], values, strict=True)]
            figures[decoding]["similarity_gain"] = asdict(bootstrap_interval(gains))
    return figures


def _similarity(folder: Path, policy: str, stale: Set[Path]) -> dict[str, list[float]]:
    """By decoding, of every row; empty where it was not measured."""
    path = folder / f"similarity-{policy}" / SIMILARITY_FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() and path not in stale else {}


def _policy(results: Results, folder: Path, run: str, seed: int, stale: Set[Path]) -> dict[str, Any]:
    metrics, rollouts = read_metrics(folder), folder / "rollouts"
    return {
        "scores": _figures(results.scores[run][seed], folder.parent, run, stale),
        "learned": verdict(results, run),
        "curves": {key: _curve(metrics, key) for key in CURVES},
        "judge_correlation": judge_curve(read_rollouts(rollouts)) if rollouts.is_dir() else [],
    }


def _curve(metrics: Iterable[Mapping[str, Any]], key: str) -> list[list[float]]:
    return [[record["step"], record[key]] for record in metrics if isinstance(record.get(key), (int, float))]


def judge_curve(records: Iterable[Mapping[str, Any]]) -> list[list[float]]:
    """[step, correlation within groups of the judge's scores and chrF against the reference] of each EVERY_STEPS.

    A step whose correlation is not defined (no references, scores all alike) is left out.
    """
    steps: dict[int, list[JudgedGroup]] = {}
    for record in records:
        if record["step"] % EVERY_STEPS == 0 and record["reference"] is not None:
            steps.setdefault(record["step"], []).append(_judged(record))
    curve = ((step, correlation(groups, n_resamples=1)) for step, groups in sorted(steps.items()))
    return [[step, interval.mean] for step, interval in curve if interval is not None]


def _judged(record: Mapping[str, Any]) -> JudgedGroup:
    texts = [candidate["translation"] for candidate in record["candidates"]]
    gold = sentence_chrfs(texts, [record["reference"]] * len(texts))
    pair = f"{record['src_lang']}-{record['trg_lang']}"
    return JudgedGroup(pair, gold, [candidate["score"] for candidate in record["candidates"]])
