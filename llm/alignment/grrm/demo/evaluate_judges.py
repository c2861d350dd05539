"""How judges rank held-out groups, and which ranker judges: `python -m grrm.demo.evaluate_judges measure|choose`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from grrm.data.parquet import iter_raw_rows
from grrm.demo.settings import CHOICE
from grrm.demo.stages import write_json
from grrm.engine.open import open_checkpoint
from grrm.entry import run_main
from grrm.evaluation.meta_metrics import score_meta
from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.gqm.groups import Group, TranslationTask
from grrm.inference.judge_sources import open_mixture
from grrm.inference.rank import RankSettings, build_generative_judge, group_of, judge_in_batches
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.building import build_judge
from grrm.judges.interface import Judge
from grrm.judges.options import RewardModelOptions
from grrm.judges.sources import read_sources
from grrm.startup import configure_process

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
_COLUMNS = ("src_text", "src_lang", "trg_lang", "mt_texts", "scores")
_RANKERS = click.option("--ranker", "rankers", multiple=True, metavar="NAME=FOLDER", help="A trained reward model.")


@click.group()
def main() -> None:
    """Measure the judges of the demo."""


@main.command()
@_RANKERS
@click.option("--baseline", "baselines", multiple=True, metavar="NAME", help="A judge without a model.")
@click.option("--gqm", "generative", multiple=True, metavar="NAME=FOLDER", help="A generative group judge.")
@click.option("--gqm-option", "gqm_options", multiple=True, metavar="NAME=VALUE", help="An option of these.")
@click.option("--sqm", "single", multiple=True, metavar="NAME=FOLDER", help="A generative judge of one candidate.")
@click.option("--sqm-option", "sqm_options", multiple=True, metavar="NAME=VALUE", help="An option of these.")
@click.option("--mixture", "mixtures", multiple=True, metavar="NAME=LIST", help="A mixture: its sources, in YAML.")
@click.option("--groups", "files", multiple=True, required=True, metavar="NAME=FILE", help="Groups with gold scores.")
@click.option("--prompt-type", required=True, help="Of the translation prompts.")
@click.option("--out", type=FILE, required=True)
def measure(
    rankers: Sequence[str],
    baselines: Sequence[str],
    generative: Sequence[str],
    gqm_options: Sequence[str],
    single: Sequence[str],
    sqm_options: Sequence[str],
    mixtures: Sequence[str],
    files: Sequence[str],
    prompt_type: str,
    out: Path,
) -> None:
    """Write to OUT how every judge ranks every file of groups, by the judge's name and the file's."""
    sets = {name: read_groups(Path(path)) for name, path in _pairs(files)}
    options = RewardModelOptions(prompt_type=prompt_type)
    openers: dict[str, Callable[[], Judge]] = {name: partial(build_judge, name) for name in baselines}
    for name, folder in _pairs(rankers):
        openers[name] = partial(open_reward_judge, folder, options=options)
    for judge, folders, values in (("gqm", generative, gqm_options), ("sqm", single, sqm_options)):
        settings = RankSettings(judge, None, {name: yaml.safe_load(value) for name, value in _pairs(values)})
        for name, folder in _pairs(folders):
            openers[name] = partial(_open_generative, folder, settings)
    for name, sources in _pairs(mixtures):
        openers[name] = partial(open_mixture, read_sources(yaml.safe_load(sources), name))
    record = {}
    for number, (name, open_judge) in enumerate(openers.items(), 1):
        judge = open_judge()
        record[name] = {of_set: ranking_record(judge, *found) for of_set, found in sets.items()}
        click.echo(f"judge {number}/{len(openers)}")
    write_json(out, record)
    click.echo("; ".join(f"{name} {_shown(found)}" for name, found in record.items()))


@main.command()
@_RANKERS
@click.option("--ranking", type=FILE, required=True, help="What `measure` wrote.")
@click.option("--on", "of_set", default="dev", show_default=True, help="The groups that decide.")
@click.option("--out", type=FOLDER, required=True)
def choose(rankers: Sequence[str], ranking: Path, of_set: str, out: Path) -> None:
    """Put the ranker whose scores correlate best with the gold ones into OUT."""
    record = json.loads(ranking.read_text(encoding="utf-8"))
    folders = dict(_pairs(rankers))
    found = {name: record[name][of_set]["correlation"]["mean"] for name in folders}
    best = max(found, key=lambda name: float(found[name]))
    for path in sorted(Path(folders[best]).iterdir()):
        if path.is_file() and path.suffix != ".jsonl":
            os.link(path, out / path.name)
    write_json(out / CHOICE, {"chosen": best, "on": of_set, "correlation": found})
    click.echo(f"{best}: correlation {', '.join(f'{name} {value:.3f}' for name, value in found.items())} on {of_set}")


def _open_generative(folder: str, settings: RankSettings) -> Judge:
    return build_generative_judge(open_checkpoint(folder, quiet=True), settings)


def read_groups(path: Path) -> tuple[list[Group], list[list[float | None]]]:
    """The groups of a parquet file with gold scores. Errors as in `iter_raw_rows`."""
    groups: list[Group] = []
    golds: list[list[float | None]] = []
    for number, (source, src_lang, trg_lang, texts, gold) in iter_raw_rows(path, _COLUMNS):
        groups.append(group_of(number, TranslationTask(source, src_lang, trg_lang), texts))
        golds.append(list(gold))
    return groups, golds


def ranking_record(judge: Judge, groups: Sequence[Group], golds: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """`RankingScores`, ties counted as wrong, and `MetaScores` of a judge, with the milliseconds that a group took."""
    started_s = time.perf_counter()
    verdicts = judge_in_batches(judge, groups)
    spent_s = time.perf_counter() - started_s
    judged = [
        JudgedGroup(f"{group.task.src_lang}-{group.task.trg_lang}", gold, verdict.scores, tokens=verdict.tokens)
        for group, gold, verdict in zip(groups, golds, verdicts, strict=True)
    ]
    milliseconds = {"milliseconds_a_group": 1e3 * spent_s / max(len(groups), 1)}
    return {**asdict(score_ranking(judged)), **asdict(score_meta(judged)), **milliseconds}


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]


def _shown(found: Mapping[str, Mapping[str, Any]]) -> str:
    return " / ".join(
        f"{_mean(of_set['accuracy'])} in order, correlation {_mean(of_set['correlation'])} ({name})"
        for name, of_set in found.items()
    )


def _mean(interval: Mapping[str, float] | None) -> str:
    return "-" if interval is None else f"{interval['mean']:.3f}"


if __name__ == "__main__":
    configure_process()
    run_main(main)
