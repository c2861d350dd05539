"""Measure how judges rank held-out groups, choose a ranker: `python -m grrm.demo.evaluate_judges measure|choose`."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, pstdev, pvariance
from typing import Any

import click
import yaml

from grrm.data.parquet import iter_raw_rows
from grrm.demo.settings import CHOICE
from grrm.demo.stages import write_json
from grrm.engine.options import AUTO_DTYPE
from grrm.entry import run_main
from grrm.errors import UserError
from grrm.evaluation.meta_metrics import score_meta
from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.inference.judge_sources import Host, open_mixture, open_source
from grrm.inference.rank import group_of, judge_in_batches
from grrm.judges.interface import Judge
from grrm.judges.sources import read_sources
from grrm.startup import configure_process

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
_FAILED = {Status.JUDGE_UNPARSABLE, Status.TOO_LONG, Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE}
_COLUMNS = ("src_text", "src_lang", "trg_lang", "mt_texts", "scores")


@click.group()
def main() -> None:
    """Measure the judges of the demo."""


@main.command()
@click.option(
    "--judge",
    "judges",
    multiple=True,
    required=True,
    metavar="NAME=SOURCE",
    help="As in reward_sources; a list is a mixture.",
)
@click.option("--groups", "files", multiple=True, required=True, metavar="NAME=FILE", help="Groups with gold scores.")
@click.option("--orders", "n_orders", type=int, default=0, help="So many groups of each file in reverse order, too.")
@click.option("--dtype", default=AUTO_DTYPE, show_default=True, help="Of the judges' models.")
@click.option("--out", type=FILE, required=True)
def measure(judges: Sequence[str], files: Sequence[str], n_orders: int, dtype: str, out: Path) -> None:
    """Write to OUT how every judge ranks every file of groups, by the judge's name and the file's."""
    sets = {name: read_groups(Path(path)) for name, path in _pairs(files)}
    record = {}
    for number, (name, source) in enumerate(_pairs(judges), 1):
        judge = _open(yaml.safe_load(source), name, Host(dtype=dtype))
        record[name] = {of_set: ranking_record(judge, *correlations, n_orders) for of_set, correlations in sets.items()}
        click.echo(f"judge {number}/{len(judges)}")
    write_json(out, record)
    click.echo("; ".join(f"{name} {_shown(correlations)}" for name, correlations in record.items()))


def _open(source: Any, name: str, host: Host) -> Judge:
    sources = read_sources(source if isinstance(source, list) else [source], name)
    return open_mixture(sources, host) if isinstance(source, list) else open_source(sources[0], host)


@main.command()
@click.option("--ranker", "rankers", multiple=True, metavar="NAME=FOLDER", help="A trained reward model.")
@click.option("--ranking", type=FILE, required=True, help="What `measure` wrote.")
@click.option("--out", type=FOLDER, required=True)
def choose(rankers: Sequence[str], ranking: Path, out: Path) -> None:
    """Put the ranker whose scores correlate best with the gold ones of the dev groups into OUT."""
    record = json.loads(ranking.read_text(encoding="utf-8"))
    folders = dict(_pairs(rankers))
    measured = {name: record[name]["dev"]["correlation"] for name in folders}
    correlations = {name: interval["mean"] for name, interval in measured.items() if interval is not None}
    if not correlations:
        raise UserError("no ranker tells the candidates of the dev groups apart: train them for more steps")
    best = max(correlations, key=lambda name: float(correlations[name]))
    for path in sorted(Path(folders[best]).iterdir()):
        if path.is_file() and path.suffix != ".jsonl":
            try:
                os.link(path, out / path.name)
            except OSError:  # of a file system without links
                shutil.copyfile(path, out / path.name)
    write_json(out / CHOICE, {"chosen": best, "on": "dev", "correlation": correlations})
    click.echo(f"{best}: correlation {', '.join(f'{name} {value:.3f}' for name, value in correlations.items())} on dev")


def read_groups(path: Path) -> tuple[list[Group], list[list[float | None]]]:
    """The groups of a parquet file with gold scores. Errors as in `iter_raw_rows`."""
    groups: list[Group] = []
    golds: list[list[float | None]] = []
    for number, (source, src_lang, trg_lang, texts, gold) in iter_raw_rows(path, _COLUMNS):
        groups.append(group_of(number, TranslationTask(source, src_lang, trg_lang), texts))
        golds.append(list(gold))
    return groups, golds


def ranking_record(
    judge: Judge, groups: Sequence[Group], golds: Sequence[Sequence[float | None]], n_orders: int = 0
) -> dict[str, Any]:
    """`RankingScores`, ties counted as wrong, `MetaScores` and `_further` of a judge, with the milliseconds of a group.

    `scores` holds the gold and the judged scores of each group. The first `n_orders` groups are judged with their
    candidates in reverse order, too.
    """
    started_s = time.perf_counter()
    verdicts = judge_in_batches(judge, groups)
    spent_s = time.perf_counter() - started_s
    reverse = [replace(group, candidates=group.candidates[::-1]) for group in groups[:n_orders]]
    orders: list[tuple[tuple[float | None, ...], ...]] = [
        (verdict.scores, other.scores[::-1])
        for verdict, other in zip(verdicts, judge_in_batches(judge, reverse), strict=False)
    ]
    judged = [
        JudgedGroup(f"{group.task.src_lang}-{group.task.trg_lang}", gold, verdict.scores, tokens=verdict.tokens)
        for group, gold, verdict in zip(groups, golds, verdicts, strict=True)
    ]
    judged[: len(orders)] = [replace(group, orders=order) for group, order in zip(judged, orders, strict=False)]
    others = {
        "milliseconds_a_group": 1e3 * spent_s / max(len(groups), 1),
        "scores": [[list(group.gold), list(group.judged)] for group in judged],
    }
    return {**asdict(score_ranking(judged)), **asdict(score_meta(judged)), **_further(judged, verdicts), **others}


def _further(judged: Sequence[JudgedGroup], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Figures of interest for judges that write.

    `accuracy_ties_half`: of the pairs in order, ties as half; `hardest_third` the same on the third of the groups with
    least spread of gold. `readable`: share of the groups that the judge has scored, or had nothing to compare in.
    `score_variance`: within a group, mean over those with two scores or more.
    """
    spreads = [pstdev([score for score in group.gold if score is not None] or [0.0]) for group in judged]
    varied = sorted((spread, number) for number, spread in enumerate(spreads) if spread > 0)
    hardest = [judged[number] for _, number in varied[: max(1, len(varied) // 3)]]
    halves = {"accuracy_ties_half": judged, "hardest_third": hardest}
    accuracies = {name: score_ranking(groups, ties="half").accuracy for name, groups in halves.items()}
    scored = [[score for score in group.judged if score is not None] for group in judged]
    variances = [pvariance(scores) for scores in scored if len(scores) > 1]
    return {
        **{name: accuracy and asdict(accuracy) for name, accuracy in accuracies.items()},
        "readable": fmean(_FAILED.isdisjoint(verdict.statuses) for verdict in verdicts) if verdicts else None,
        "score_variance": fmean(variances) if variances else None,
    }


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]


def _shown(correlations: Mapping[str, Mapping[str, Any]]) -> str:
    return " / ".join(
        f"{_mean(of_set['accuracy'])} in order, correlation {_mean(of_set['correlation'])} ({name})"
        for name, of_set in correlations.items()
    )


def _mean(interval: Mapping[str, float] | None) -> str:
    return "-" if interval is None else f"{interval['mean']:.3f}"


if __name__ == "__main__":
    configure_process()
    run_main(main)
