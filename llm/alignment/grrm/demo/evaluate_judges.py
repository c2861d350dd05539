"""Measures how judges rank held-out groups: `python -m grrm.demo.evaluate_judges --judge NAME=KIND:FOLDER …`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import yaml

from grrm.data.parquet import iter_raw_rows
from grrm.demo.stages import write_json
from grrm.engine.open import open_checkpoint
from grrm.entry import run_main
from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.gqm.groups import Group, TranslationTask
from grrm.inference.rank import RankSettings, group_of, rank_groups
from grrm.startup import configure_process

FILE = click.Path(path_type=Path, dir_okay=False)
_COLUMNS = ("src_text", "src_lang", "trg_lang", "mt_texts", "scores")


@click.command()
@click.option("--judge", "judges", multiple=True, required=True, metavar="NAME=KIND:FOLDER", help="gqm or sqm.")
@click.option("--groups", "files", multiple=True, required=True, metavar="NAME=FILE", help="Groups with gold scores.")
@click.option("--gqm-option", "gqm_options", multiple=True, metavar="NAME=VALUE", help="Option of the group judges.")
@click.option("--sqm-option", "sqm_options", multiple=True, metavar="NAME=VALUE", help="Option of the single judges.")
@click.option("--out", type=FILE, required=True)
def main(
    judges: tuple[str, ...],
    files: tuple[str, ...],
    gqm_options: tuple[str, ...],
    sqm_options: tuple[str, ...],
    out: Path,
) -> None:
    """Write the ranking accuracy of every judge on every file of groups to OUT, by the judge's name and the file's."""
    options = {"gqm": read_options(gqm_options), "sqm": read_options(sqm_options)}
    sets = {name: read_groups(Path(path)) for name, _, path in (text.partition("=") for text in files)}
    record: dict[str, dict[str, Any]] = {}
    for number, text in enumerate(judges, 1):
        name, _, place = text.partition("=")
        kind, _, folder = place.partition(":")
        opened = open_checkpoint(folder)
        record[name] = {}
        for of_set, (groups, golds) in sets.items():
            verdicts = rank_groups(opened, groups, RankSettings(kind, None, options[kind]))
            found = ranking_record(groups, golds, [list(verdict.scores) for verdict in verdicts])
            record[name][of_set] = found
        click.echo(f"pass {number}/{len(judges)}")
    write_json(out, record)
    click.echo(", ".join(f"{name} {_shown(found)}" for name, found in record.items()))


def read_groups(path: Path) -> tuple[list[Group], list[list[float]]]:
    """The groups of a parquet file of `grrm data groups`, and their gold scores. Errors as in `iter_raw_rows`."""
    groups: list[Group] = []
    golds: list[list[float]] = []
    for number, (source, src_lang, trg_lang, texts, gold) in iter_raw_rows(path, _COLUMNS):
        groups.append(group_of(number, TranslationTask(source, src_lang, trg_lang), texts))
        golds.append([float(score) for score in gold])
    return groups, golds


def ranking_record(
    groups: Sequence[Group], golds: Sequence[Sequence[float]], scores: Sequence[Sequence[float | None]]
) -> dict[str, Any]:
    """`RankingScores` with ties counted as wrong, and the accuracy with ties counted as half."""
    judged = [
        JudgedGroup(f"{group.task.src_lang}-{group.task.trg_lang}", gold, found)
        for group, gold, found in zip(groups, golds, scores, strict=True)
    ]
    half = score_ranking(judged, ties="half").accuracy
    return {**asdict(score_ranking(judged)), "accuracy_ties_half": None if half is None else asdict(half)}


def read_options(texts: Sequence[str]) -> dict[str, object]:
    """`NAME=VALUE` by name, values as in YAML."""
    pairs = (text.partition("=") for text in texts)
    return {name: yaml.safe_load(value) for name, _, value in pairs}


def _shown(found: Mapping[str, Mapping[str, Any]]) -> str:
    return " / ".join("-" if one["accuracy"] is None else f"{one['accuracy']['mean']:.3f}" for one in found.values())


if __name__ == "__main__":
    configure_process()
    run_main(main)
