"""Picks the texts that the report shows: translations before and after, failures included, and rollout groups."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from grrm.demo.results import Results, seed_folder
from grrm.demo.settings import SFT, TITLES
from grrm.evaluation.text_metrics import sentence_chrfs
from grrm.tracking.rollout_dump import read_rollouts

PER_KIND = 4  # rows


@dataclass(frozen=True, slots=True)
class Output:
    """Translations of one source by one policy; texts are None when nothing could be extracted."""

    policy: str
    greedy: str | None
    greedy_chrf: float
    sampled: str | None
    sampled_chrf: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One held-out row and every policy's output; `kind` says why it is shown."""

    kind: str
    source: str
    src_lang: str
    trg_lang: str
    reference: str
    outputs: tuple[Output, ...]


def pick_samples(results: Results) -> list[Sample]:
    """Rows of the first seed: those RL improved most, those it spoilt, those it fails on, and a few by position.

    RL is the run that the demo is about. Rows are chosen by the chrF of their first sample, except the plain
    ones, which are taken at equal distances so that nobody has picked them.
    """
    examples = _examples_of_first_seed(results)
    trained = results.settings.headline
    if trained not in examples or SFT not in examples:
        return []
    n_rows = min(len(rows) for rows in examples.values())
    samples = [_sample(examples, row) for row in range(n_rows)]
    gains = [_of(sample, trained) - _of(sample, SFT) for sample in samples]
    by_gain = sorted(range(n_rows), key=lambda row: (gains[row], row))
    by_score = sorted(range(n_rows), key=lambda row: (_of(samples[row], trained), row))
    choices = {
        "better after RL": [row for row in reversed(by_gain) if gains[row] > 0],
        "worse after RL": [row for row in by_gain if gains[row] < 0],
        "still wrong": [row for row in by_score if _of(samples[row], trained) < 100],
        "picked by position": list(range(0, n_rows, max(1, n_rows // PER_KIND))),
    }
    chosen: dict[int, str] = {}
    for kind, rows in choices.items():
        for row in [row for row in rows if row not in chosen][:PER_KIND]:
            chosen[row] = kind
    return [replace(samples[row], kind=kind) for row, kind in chosen.items()]


def pick_groups(out: Path, results: Results) -> list[tuple[str, Mapping[str, Any]]]:
    """Per algorithm the most telling group of the first and of the last dumped step of the first seed, with a title.

    The most telling group is the one whose rewards differ most; ties go to the one dumped first.
    """
    shown: list[tuple[str, Mapping[str, Any]]] = []
    for algorithm in results.settings.rl_runs:
        folder = seed_folder(out, results.settings.first_seed) / algorithm / "rollouts"
        of_steps = groupby(read_rollouts(folder), key=lambda record: record["step"])
        telling = [max(records, key=_spread) for _, records in of_steps]
        shown += [(f"{TITLES[algorithm]}, step {group['step']}", group) for group in telling[:1] + telling[1:][-1:]]
    return shown


def _spread(record: Mapping[str, Any]) -> float:
    rewards = [candidate["reward"] for candidate in record["candidates"] if candidate["reward"] is not None]
    return statistics.pstdev(rewards) if rewards else 0.0


def _examples_of_first_seed(results: Results) -> dict[str, Sequence[Mapping[str, Any]]]:
    seed = results.settings.first_seed
    return {policy: by_seed[seed]["examples"] for policy, by_seed in results.scores.items() if seed in by_seed}


def _sample(examples: Mapping[str, Sequence[Mapping[str, Any]]], row: int) -> Sample:
    facts = next(iter(examples.values()))[row]
    outputs = []
    for policy, rows in examples.items():
        greedy, sampled = rows[row]["greedy"], rows[row]["sampled"][0]
        chrfs = sentence_chrfs([greedy, sampled], [facts["reference"]] * 2)
        outputs.append(Output(policy, greedy, chrfs[0], sampled, chrfs[1]))
    return Sample("", facts["source"], facts["src_lang"], facts["trg_lang"], facts["reference"], tuple(outputs))


def _of(sample: Sample, policy: str) -> float:
    return next(output.sampled_chrf for output in sample.outputs if output.policy == policy)
