"""`grrm eval ranking`: judges' scores against gold scores, several judges side by side."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import FILE
from grrm.cli.reports import check_outputs, draw, mean_and_interval, percent, report_options
from grrm.errors import UserError

if TYPE_CHECKING:
    from grrm.cli.records import Records
    from grrm.evaluation.bootstrap import Interval
    from grrm.evaluation.meta_metrics import MetaScores
    from grrm.evaluation.ranking import JudgedGroup, RankingScores

logger = logging.getLogger(__name__)

_METRICS = {  # fields of MetaScores: in the table of one judge, as a column beside other judges
    "correlation": ("correlation within groups", "correlation"),
    "kendall_tau_b": ("Kendall tau-b", "tau-b"),
    "tie_calibrated_accuracy": ("tie-calibrated accuracy", "tie-calibrated"),
    "soft_pairwise_accuracy": ("soft pairwise accuracy of systems", "soft, systems"),
    "soft_sample_accuracy": ("soft accuracy of samples", "soft, samples"),
    "order_consistency": ("pairs alike in other orders", "consistent"),
    "tokens": ("judge's tokens a group", "tokens"),
}


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """The usable groups of one judge's file by row number (from 1), and why other rows were left out."""

    name: str
    n_rows: int
    groups: dict[int, JudgedGroup]
    left_out: Counter[str]


@dataclass(frozen=True, slots=True)
class Scores:
    """What was found over some groups."""

    ranking: RankingScores
    meta: MetaScores

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self.ranking), **asdict(self.meta)}


@click.command()
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--score-key", default="judge_scores", show_default=True, help="Column of the judge's lists of scores.")
@click.option("--gold-key", default="scores", show_default=True, help="Column of the lists of gold scores.")
@click.option("--system-key", default="systems", show_default=True, help="Column of the lists of candidates' systems.")
@click.option(
    "--ties", type=click.Choice(["wrong", "half", "skip"]), default="wrong", show_default=True, help="A judge's ties."
)
@click.option(
    "--unscored", type=click.Choice(["skip", "wrong"]), default="skip", show_default=True, help="Pairs without scores."
)
@click.option(
    "--gold-ties",
    type=click.Choice(["skip", "count"]),
    default="skip",
    show_default=True,
    help="Pairs of equal gold; counted, a tie is right.",
)
@report_options
def ranking(
    files: tuple[Path, ...], json_file: Path | None, chart: Path | None, resamples: int, seed: int, **options: Any
) -> None:
    """How well judges order candidates: FILES are .jsonl or .parquet files that `grrm rank` wrote.

    The share of candidate pairs that a judge orders as the gold scores do, of all pairs whose gold scores differ, with
    95 % bootstrap intervals over groups, for each language pair and for all; then correlation and accuracies that
    count ties otherwise. Several FILES hold the verdicts of several judges on the same rows, and are compared on the
    rows that all of them can use.
    """
    from grrm.cli.results import write_json

    check_outputs(json_file, chart)
    keys = {name: options.pop(name) for name in ("gold_key", "score_key", "system_key")}
    judges = on_the_same_rows(
        [read_judged(path, name, **keys) for path, name in zip(files, _names(files), strict=True)]
    )
    found = {judge.name: score(judge, resamples, seed, **options) for judge in judges}
    for judge in judges:
        _show(judge, found[judge.name], options)
    if len(judges) > 1:
        _show_side_by_side({name: scores["all"] for name, scores in found.items()})
    if json_file:
        records = {
            judge.name: {
                "left_out": dict(judge.left_out),
                "results": {name: scores.record() for name, scores in found[judge.name].items()},
            }
            for judge in judges
        }
        report = records[judges[0].name] if len(judges) == 1 else {"judges": records}
        write_json(json_file, {**options, "seed": seed, "resamples": resamples, **report})
    bars = found[judges[0].name] if len(judges) == 1 else {name: scores["all"] for name, scores in found.items()}
    draw(
        chart,
        "Pairwise ranking accuracy",
        "share of pairs ordered as the gold scores, 95 % interval",
        {name: scores.ranking.accuracy for name, scores in bars.items()},
        limits=(0.0, 1.0),
        baseline=0.5,
    )


def read_judged(path: Path, name: str, *, gold_key: str, score_key: str, system_key: str) -> JudgedFile:
    """The groups of a file; rows that cannot be used are left out, logged and counted.

    Raises UserError for a file that cannot be read or has no usable row.
    """
    from grrm.cli.records import RowError, read_records

    records = read_records(path)
    groups: dict[int, JudgedGroup] = {}
    faults: dict[int, RowError] = {}
    for number in range(1, len(records.rows) + 1):
        try:
            groups[number] = _group(records, number, gold_key, score_key, system_key)
        except RowError as error:
            faults[number] = error
    if not groups:
        raise next(iter(faults.values()))
    for fault in faults.values():
        logger.warning("left out: %s", fault)
    return JudgedFile(name, len(records.rows), groups, Counter(fault.reason for fault in faults.values()))


def on_the_same_rows(judges: Sequence[JudgedFile]) -> list[JudgedFile]:
    """The judges' files reduced to the rows that every one of them can use.

    Raises UserError where they do not hold the same groups: another number of rows, or another gold score.
    """
    first = judges[0]
    common = [number for number in first.groups if all(number in judge.groups for judge in judges)]
    for judge in judges:
        if judge.n_rows != first.n_rows:
            raise UserError(
                f"{first.name} has {first.n_rows} rows and {judge.name} {judge.n_rows}; give files that `grrm rank` "
                "wrote for the same rows"
            )
        for number in common:
            one, other = first.groups[number], judge.groups[number]
            if (one.language_pair, one.gold) != (other.language_pair, other.gold):
                raise UserError(
                    f"row {number} has other languages or gold scores in {judge.name} than in {first.name}; give files "
                    "that `grrm rank` wrote for the same rows"
                )
    if not common:
        raise UserError(f"no row can be used in all of {', '.join(judge.name for judge in judges)}; mend the files")
    reduced = []
    for judge in judges:
        left_out = judge.left_out.copy()
        if len(judge.groups) > len(common):
            left_out["left out for another judge"] = len(judge.groups) - len(common)
        groups = {number: judge.groups[number] for number in common}
        reduced.append(JudgedFile(judge.name, judge.n_rows, groups, left_out))
    return reduced


def score(judge: JudgedFile, resamples: int, seed: int, **rules: Any) -> dict[str, Scores]:
    """The scores of each language pair, and of `all` groups at the end."""
    from grrm.evaluation.meta_metrics import score_meta
    from grrm.evaluation.ranking import by_language_pair, score_ranking

    draws: dict[str, Any] = {"n_resamples": resamples, "seed": seed}
    return {
        name: Scores(score_ranking(groups, **rules, **draws), score_meta(groups, **draws))
        for name, groups in by_language_pair(list(judge.groups.values())).items()
    }


def _group(records: Records, number: int, gold_key: str, score_key: str, system_key: str) -> JudgedGroup:
    from grrm.cli.records import check_lengths, count, lists_of_scores, names, optional, scores, text
    from grrm.evaluation.ranking import JudgedGroup

    gold = records.cell(number, gold_key, scores, "a list of numbers")
    wanted = "a list of numbers, null where there is none; run `grrm rank` first"
    judged = records.cell(number, score_key, scores, wanted)
    check_lengths(records, number, f"{gold_key} and {score_key}", [gold, judged])
    languages = [records.cell(number, name, text, "a language") for name in ("src_lang", "trg_lang")]
    orders = records.cell(number, "judge_order_scores", optional(lists_of_scores), "lists of numbers, one per order")
    for order in orders or ():
        check_lengths(records, number, f"{gold_key} and judge_order_scores", [gold, order])
    systems = records.cell(number, system_key, optional(names), "a list of different names")
    if systems is not None:
        check_lengths(records, number, f"{gold_key} and {system_key}", [gold, systems])
    tokens = records.cell(number, "judge_tokens", optional(count), "a number of tokens")
    return JudgedGroup("-".join(languages), gold, judged, orders or (), systems, tokens)


def _names(files: Sequence[Path]) -> list[str]:
    """What the judges are called: their files' names without suffix, or the paths where these are not different."""
    stems = [path.stem for path in files]
    if len(set(stems)) == len(stems):
        return stems
    if len(set(files)) < len(files):
        raise UserError(f"a file is given twice in {', '.join(map(str, files))}; give each judge's file once")
    return [str(path) for path in files]


def _show(judge: JudgedFile, found: Mapping[str, Scores], rules: Mapping[str, str]) -> None:
    from grrm.cli.results import show_table

    show_table(
        f"Pairwise ranking accuracy: {judge.name}",
        ["pair", "accuracy #", "95 % interval", "groups #", "pairs #", "scored #", "tied #", "zero variance #"],
        [
            [
                name,
                *mean_and_interval(scores.ranking.accuracy, 3),
                str(scores.ranking.n_groups),
                str(scores.ranking.n_pairs),
                *map(percent, (scores.ranking.coverage, scores.ranking.tied, scores.ranking.zero_variance)),
            ]
            for name, scores in found.items()
        ],
        [
            f"pairs: those whose gold scores differ{' and those of equal gold' * (rules['gold_ties'] == 'count')}; "
            f"a judge's ties: {rules['ties']}; pairs it did not score: {rules['unscored']}",
            "zero variance: groups of two scored candidates or more that all have the same score",
            *_left_out(judge),
        ],
    )
    meta = found["all"].meta
    show_table(
        f"All groups: {judge.name}",
        ["metric", "value #", "95 % interval"],
        [[title, *_cells(name, getattr(meta, name))] for name, (title, _) in _METRICS.items()],
        [] if meta.tie_threshold is None else [f"tie-calibrated: scores {meta.tie_threshold:g} apart or less are ties"],
    )


def _show_side_by_side(found: Mapping[str, Scores]) -> None:
    from grrm.cli.results import show_table

    show_table(
        "Judges side by side, all groups",
        ["judge", "accuracy #", "95 % interval", *(f"{column} #" for _, column in _METRICS.values())],
        [
            [
                name,
                *mean_and_interval(scores.ranking.accuracy, 3),
                *(_cells(metric, getattr(scores.meta, metric))[0] for metric in _METRICS),
            ]
            for name, scores in found.items()
        ],
    )


def _cells(metric: str, value: Interval | float | None) -> tuple[str, str]:
    digits = 1 if metric == "tokens" else 3
    return (f"{value:.{digits}f}", "-") if isinstance(value, float) else mean_and_interval(value, digits)


def _left_out(judge: JudgedFile) -> list[str]:
    if not judge.left_out:
        return []
    reasons = ", ".join(f"{count} x {reason}" for reason, count in judge.left_out.most_common())
    return [f"{len(judge.groups)} rows scored, {judge.left_out.total()} left out ({reasons})"]
