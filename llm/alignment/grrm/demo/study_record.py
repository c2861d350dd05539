"""What the study of one seed found, as a record that figures and tables are made from, here or elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grrm.demo.results import Results, load_results, scores_file, seed_folder, verdict, versions
from grrm.demo.settings import SFT, DemoSettings
from grrm.demo.stages import write_json
from grrm.demo.study_plan import PARTS, REFRESHED, RL_JUDGES, WRITING, ranker_arms, study_file
from grrm.evaluation.meta_metrics import correlation
from grrm.evaluation.ranking import JudgedGroup
from grrm.evaluation.text_metrics import sentence_chrfs
from grrm.tracking.metrics_log import read_metrics
from grrm.tracking.rollout_dump import read_rollouts

EVERY_STEPS = 10  # of a policy's training, for how its judge follows gold
REWARD = "reward_mean"
CURVES = (REWARD, "kl", "eval_reward", "eval_reward_greedy", "eval_chrf", "eval_chrf_greedy")


def write_records(out: Path, settings: DemoSettings, seconds: Mapping[str, float]) -> list[Path]:
    """`study-seedN.json` in `out` for every seed of which a part is measured; their paths."""
    paths = []
    for seed in settings.seeds:
        if _measured(out, seed):
            path = out / f"study-seed{seed}.json"
            write_json(path, seed_record(out, settings, seed, seconds))
            paths.append(path)
    return paths


def seed_record(out: Path, settings: DemoSettings, seed: int, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The judges' rankings with what each learned from, the policies' gains and curves, and the rewards of RLVR."""
    folder = seed_folder(out, seed)
    runs = [run for run in (*settings.rl_runs, *RL_JUDGES, REFRESHED) if scores_file(out, seed, run).exists()]
    of_seed = DemoSettings(n_seeds=1, first_seed=seed, judge=settings.judge)
    results = load_results(out, of_seed, seconds, (SFT, *runs))
    judges: dict[str, Any] = {}
    for path in _measured(out, seed):
        judges |= json.loads(path.read_text(encoding="utf-8"))
    arms = {
        arm.name: {"compare": arm.compare, "gold": arm.gold, "groups": arm.groups, "candidates": arm.candidates}
        for arm in ranker_arms()
    }
    return {
        "seed": seed,
        "judges": {name: {**found, **arms.get(name, {})} for name, found in judges.items()},
        "policies": {run: policy_record(results, folder, run) for run in runs},
        "rlvr": _rewards_of_judges(folder),
        "seconds": {name: spent_s for name, spent_s in seconds.items() if name.startswith(f"seed{seed}/")},
        "versions": versions(),
    }


def _measured(out: Path, seed: int) -> list[Path]:
    return [path for path in (study_file(out, seed, part) for part in PARTS) if path.exists()]


def _rewards_of_judges(folder: Path) -> dict[str, list[list[float]]]:
    """The mean reward of each step of RLVR, of the judges that write."""
    judges = [judge for kind in WRITING.values() for judge in kind.starts]
    curves = {judge: _curve(read_metrics(folder / judge), REWARD) for judge in judges}
    return {judge: curve for judge, curve in curves.items() if curve}


def policy_record(results: Results, folder: Path, run: str) -> dict[str, Any]:
    """What a policy gained over SFT, its curves, and how well its judge followed gold while it moved."""
    metrics = read_metrics(folder / run)
    curves = {key: _curve(metrics, key) for key in CURVES}
    rollouts = folder / run / "rollouts"
    followed = judge_curve(read_rollouts(rollouts)) if rollouts.is_dir() else []
    return {"learned": verdict(results, run), "curves": curves, "judge_correlation": followed}


def _curve(metrics: Iterable[Mapping[str, Any]], key: str) -> list[list[float]]:
    return [[record["step"], record[key]] for record in metrics if isinstance(record.get(key), (int, float))]


def judge_curve(records: Iterable[Mapping[str, Any]], every: int = EVERY_STEPS) -> list[list[float]]:
    """[step, correlation within groups of the judge's scores and chrF against the reference] of every so many steps.

    A step whose correlation is not defined (no references, scores all alike) is left out.
    """
    steps: dict[int, list[JudgedGroup]] = {}
    for record in records:
        if record["step"] % every == 0 and record["reference"] is not None:
            steps.setdefault(record["step"], []).append(_judged(record))
    found = ((step, correlation(groups, n_resamples=1)) for step, groups in sorted(steps.items()))
    return [[step, interval.mean] for step, interval in found if interval is not None]


def _judged(record: Mapping[str, Any]) -> JudgedGroup:
    texts = [candidate["translation"] for candidate in record["candidates"]]
    gold = sentence_chrfs(texts, [record["reference"]] * len(texts))
    pair = f"{record['src_lang']}-{record['trg_lang']}"
    return JudgedGroup(pair, gold, [candidate["score"] for candidate in record["candidates"]])
