"""`grrm eval ranking`: judges' scores against gold scores, several judges side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import FILE, is_explicit
from grrm.cli.reports import mean_and_interval, percent, report_options
from grrm.errors import UserError

if TYPE_CHECKING:
    from grrm.cli.judged_files import JudgedFile
    from grrm.evaluation.bootstrap import Interval
    from grrm.evaluation.meta_metrics import MetaScores
    from grrm.evaluation.ranking import RankingScores

_METRICS = {  # fields of MetaScores: in the table of one judge, as a column beside other judges
    "correlation": ("correlation within groups", "correlation"),
    "kendall_tau_b": ("Kendall tau-b", "tau-b"),
    "tie_calibrated_accuracy": ("tie-calibrated accuracy", "tie-calibrated"),
    "soft_pairwise_accuracy": ("soft pairwise accuracy of systems", "soft, systems"),
    "soft_sample_accuracy": ("soft accuracy of samples", "soft, samples"),
    "order_consistency": ("pairs alike in other orders", "consistent"),
    "tokens": ("generated tokens a group", "tokens"),
}


@dataclass(frozen=True, slots=True)
class Scores:
    """The results over some groups."""

    ranking: RankingScores
    meta: MetaScores

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self.ranking), **asdict(self.meta)}


@click.command()
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--score-key", default="judge_scores", show_default=True, help="Column of the judge's lists of scores.")
@click.option("--gold-key", default="scores", show_default=True, help="Column of the lists of gold scores.")
@click.option("--system-key", help="Column of the lists of candidates' systems, for soft pairwise accuracy.")
@click.option(
    "--ties",
    type=click.Choice(["wrong", "half", "skip"]),
    default="wrong",
    show_default=True,
    help="How to count ties of the judge.",
)
@click.option(
    "--unscored",
    type=click.Choice(["skip", "wrong", "half"]),
    default="skip",
    show_default=True,
    help="How to treat pairs without scores.",
)
@click.option(
    "--gold-ties",
    type=click.Choice(["skip", "count"]),
    default="skip",
    show_default=True,
    help="How to treat pairs of equal gold; if counted, a tie is right.",
)
@click.option(
    "--baseline",
    type=click.Choice(["consensus", "none"]),
    default="consensus",
    show_default=True,
    help="Baseline to show: consensus, the mean chrF to the other samples, where rows have mt_texts.",
)
@report_options
def ranking(
    files: tuple[Path, ...],
    baseline: str,
    json_file: Path | None,
    resamples: int,
    seed: int,
    **options: Any,
) -> None:
    """Measure how well judges order candidates: FILES are .jsonl or .parquet files that `grrm rank` wrote.

    The share of candidate pairs that a judge orders as the gold scores do, of all pairs whose gold scores differ, with
    95 % bootstrap intervals over groups, for each language pair and for all; then correlation and accuracies that
    count ties otherwise.

    Several FILES hold the verdicts of several judges on the same rows, and are compared on the rows that all of them
    can use; consensus, which needs no model, stands beside them.
    """
    from grrm.cli.judged_files import consensus_beside, judge_names, on_the_same_rows, read_judged
    from grrm.data.atomic import check_writable, write_json
    from grrm.evaluation.ranking import accuracy_difference

    check_writable(json_file)
    keys = {name: options.pop(name) for name in ("gold_key", "score_key", "system_key")}
    judges = on_the_same_rows(
        [read_judged(path, name, **keys) for path, name in zip(files, judge_names(files), strict=True)]
    )
    shows_baseline = baseline != "none" and all(path.stem != baseline for path in files)
    beside = consensus_beside(judges) if shows_baseline else None
    if shows_baseline and beside is None and is_explicit("--baseline"):
        raise UserError(f"--baseline {baseline} needs the texts of every row; leave it out, or add them")
    shown = judges if beside is None else [*judges, beside]
    scores_of = {judge.name: score(judge, resamples, seed, **options) for judge in shown}
    first, *others = ([*judge.groups.values()] for judge in shown)
    draws: dict[str, Any] = {"n_resamples": resamples, "seed": seed}
    differences = {
        judge.name: accuracy_difference(first, groups, **options, **draws)
        for judge, groups in zip(shown[1:], others, strict=True)
    }
    for judge in judges:
        _show(judge, scores_of[judge.name], options)
    overall = {name: scores["all"] for name, scores in scores_of.items()}
    if differences:
        _show_side_by_side(overall, differences)
    if json_file:
        report = _report(judges, beside, scores_of, differences)
        write_json(json_file, {**options, "seed": seed, "resamples": resamples, **report})


def score(judge: JudgedFile, resamples: int, seed: int, **rules: Any) -> dict[str, Scores]:
    """The scores of each language pair, and of `all` groups at the end."""
    from grrm.evaluation.meta_metrics import score_meta
    from grrm.evaluation.ranking import by_language_pair, score_ranking

    draws: dict[str, Any] = {"n_resamples": resamples, "seed": seed}
    return {
        name: Scores(score_ranking(groups, **rules, **draws), score_meta(groups, **draws))
        for name, groups in by_language_pair(list(judge.groups.values())).items()
    }


def _report(
    judges: Sequence[JudgedFile],
    baseline: JudgedFile | None,
    scores_of: Mapping[str, Mapping[str, Scores]],
    differences: Mapping[str, Interval | None],
) -> dict[str, Any]:
    """One judge's results, or with several each one's by name; the baseline's by name under `baseline`."""
    several = [*judges, *([] if baseline is None else [baseline])]
    records: dict[str, dict[str, Any]] = {
        judge.name: {
            "left_out": dict(judge.excluded),
            "results": {name: scores.record() for name, scores in scores_of[judge.name].items()},
        }
        for judge in several
    }
    for name, difference in differences.items():
        records[name]["difference"] = None if difference is None else asdict(difference)
    beside = {} if baseline is None else {"baseline": {baseline.name: records.pop(baseline.name)}}
    return {**({"judges": records} if len(judges) > 1 else records[judges[0].name]), **beside}


def _show(judge: JudgedFile, scores_of: Mapping[str, Scores], rules: Mapping[str, str]) -> None:
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
            for name, scores in scores_of.items()
        ],
        [
            f"pairs: those whose gold scores differ{' and those of equal gold' * (rules['gold_ties'] == 'count')}; "
            f"a judge's ties: {rules['ties']}; pairs it did not score: {rules['unscored']}",
            "zero variance: groups of two scored candidates or more that all have the same score",
            judge.summary(),
        ],
    )
    meta = scores_of["all"].meta
    show_table(
        f"All groups: {judge.name}",
        ["metric", "value #", "95 % interval"],
        [[title, *_cells(name, getattr(meta, name))] for name, (title, _) in _METRICS.items()],
        [] if meta.tie_threshold is None else [f"tie-calibrated: scores {meta.tie_threshold:g} apart or less are ties"],
    )


def _show_side_by_side(scores_of: Mapping[str, Scores], differences: Mapping[str, Interval | None]) -> None:
    from grrm.cli.results import show_table

    show_table(
        "Judges side by side, all groups",
        ["judge", "accuracy #", "- first #", "95 % interval", *(f"{column} #" for _, column in _METRICS.values())],
        [
            [
                name,
                mean_and_interval(scores.ranking.accuracy, 3)[0],
                *mean_and_interval(differences.get(name), 3),
                *(_cells(metric, getattr(scores.meta, metric))[0] for metric in _METRICS),
            ]
            for name, scores in scores_of.items()
        ],
        ["- first: accuracy minus that of the first judge, its interval with the same groups drawn for both"],
    )


def _cells(metric: str, value: Interval | float | None) -> tuple[str, str]:
    digits = 1 if metric == "tokens" else 3
    return (f"{value:.{digits}f}", "-") if isinstance(value, float) else mean_and_interval(value, digits)
