"""`grrm probe`: the damages that a judge rewards, before a policy is trained against it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.judge_options import choose_judge, judge_options
from grrm.cli.options import COUNT, FILE, language_options, refuse_ineffective
from grrm.cli.reports import judge_cost, mean_and_interval, percent, unread_replies
from grrm.cli.verdict_columns import UNANSWERED
from grrm.entry import read_assignments
from grrm.errors import UserError, require_known

if TYPE_CHECKING:
    from grrm.cli.records import Cell
    from grrm.evaluation.probes.measure import ProbeReport
    from grrm.gqm.groups import Group, TranslationTask, Verdict
    from grrm.judges.interface import Judge
    from grrm.judges.metrics import JudgeMetrics
    from grrm.judges.spec import JudgeSpec

_HEADERS = (
    *("probe", "pair", "right #", "95 % interval", "margin #", "tied #", "rows #"),
    *("refused #", "unscored #", "n/a #"),
)
_UNREAD = "most pairs have no two scores: a judge that was trained on groups of one size needs --group-size"
NOTES = {
    "needed": "this judge reads the reference, and the reference is a candidate: right decisions are trivial",
    "optional": "this judge may read the reference, which is a candidate: if it does, right decisions are trivial",
}


@click.command()
@click.argument("rows", type=FILE)
@judge_options
@language_options
@click.option("--rows", "n_rows", type=COUNT, default=100, show_default=True, help="Rows for each probe, at random.")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Only this probe; repeatable.  [default: all]")
@click.option(
    "--group-size",
    "sizes",
    type=click.IntRange(min=2),
    multiple=True,
    default=(2,),
    show_default=True,
    help="Candidates of a group, the reference and damaged copies; 2 makes pairs. Repeat to compare sizes.",
)
@click.option("--samples-key", metavar="COLUMN", help="Column of lists of translations that stand in every group, too.")
@click.option("--apart", is_flag=True, help="With --samples-key: each text in a group of its own with the samples.")
@click.option(
    "--one-order",
    "single_order",
    is_flag=True,
    help="Judge each group in one random order instead of that and its reverse.",
)
@click.option(
    "--probe-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed of rows and damages."
)
@click.option("--resamples", type=COUNT, default=1000, show_default=True, help="Bootstrap resamples.")
@click.option("--out", type=FILE, help="Write the results to this .json file.")
def probe(rows: Path, batch_rows: int, judge_options: tuple[str, ...], out: Path | None, **options: Any) -> None:
    """Damage the references of ROWS in known ways, and measure how often a judge prefers the damage.

    ROWS is a file of rows with the columns src_text, trg_text, src_lang and trg_lang. Each probe makes one kind of
    damage; a judge that is right in less than half of a probe's pairs rewards it. The last line says which damage a
    policy would exploit first.
    """
    from grrm.data.atomic import check_writable, write_json
    from grrm.evaluation.probes.measure import measure, probe_groups
    from grrm.evaluation.probes.perturb import PROBES
    from grrm.evaluation.probes.rows import choose_rows, shuffled_rows
    from grrm.judges.metrics import JudgeMetrics
    from grrm.judges.registry import spec_of

    check_writable(out)
    names = list(dict.fromkeys(options.pop("probes"))) or [*PROBES]
    n_rows, seed, n_resamples = (options.pop(name) for name in ("n_rows", "probe_seed", "resamples"))
    sizes, single_order = dict.fromkeys(options.pop("sizes")), options.pop("single_order")
    spec = spec_of(options.pop("judge"))
    languages = {name: options.pop(name) for name in ("src_lang", "trg_lang")}
    samples_key, apart = options.pop("samples_key"), options.pop("apart")
    _check(names, max(sizes), spec, samples_key, apart)
    chosen = choose_rows(shuffled_rows(*_read(rows, samples_key, **languages), seed), names, n_rows, seed)
    how = {"both_orders": not single_order, "apart": apart, "shows_reference": spec.reference != "unread"}
    groups_of = {size: probe_groups(chosen, size=size, **how, seed=seed) for size in sizes}
    metrics = JudgeMetrics()
    groups = [probed.group for groups in groups_of.values() for probed in groups]
    if not groups:
        raise UserError(f"no probe of {', '.join(names)} applies to {rows}: name others")
    assignments = read_assignments(judge_options, "judge option") or {}
    judge = choose_judge(spec, groups, metrics, options, assignments)
    verdicts = iter(_judged(judge.open, groups, batch_rows, metrics))
    reports = {
        size: measure(chosen, of_size, [next(verdicts) for _ in of_size], n_resamples, seed)
        for size, of_size in groups_of.items()
    }
    for size, report in reports.items():
        kind = "each text apart" if apart else "pairs" if size == 2 else f"groups of {size}"
        _show(f"Probes of {spec.name}: {len(chosen.rows)} rows, {kind}", report, NOTES.get(spec.reference))
    if out is not None:
        settings = {"judge": spec.name, "reads_reference": spec.reference, "seed": seed}
        settings["options"] = {name: value for name, value in judge.settings.items() if name != "judge"}
        counts = {"rows": len(chosen.rows), "rows_a_probe": n_rows, "orders": 1 if single_order else 2}
        of_sizes = {"apart" if apart else str(size): report.record() for size, report in reports.items()}
        write_json(out, {**settings, **counts, "group_sizes": of_sizes})


def _check(names: Sequence[str], size: int, spec: JudgeSpec, samples_key: str | None, apart: bool) -> None:
    """Raise UserError for probes that are none, and options that do not go together."""
    from grrm.cli.judged_files import CONSENSUS
    from grrm.evaluation.probes.perturb import PROBES

    for name in names:
        require_known("probe", name, PROBES)
    if size > len(PROBES) + 1:
        raise UserError(f"--group-size {size} is more than a reference and {len(PROBES)} damages; give fewer")
    if spec.of_answers:
        raise UserError(f"judge {spec.name!r} judges answers, and probes are translations: name another judge")
    if spec.name == CONSENSUS and samples_key is None:
        raise UserError("judge consensus needs samples to compare with: name their column with --samples-key")
    if apart and samples_key is None:
        raise UserError("--apart needs samples for every group: name their column with --samples-key")
    if apart:
        refuse_ineffective(("group_size",), "with --apart")


def _read(
    path: Path, samples_key: str | None, src_lang: str | None, trg_lang: str | None
) -> tuple[list[TranslationTask], list[list[str | None]]]:
    """The tasks of the file, and their samples; of rows that cannot be used it is told."""
    from grrm.cli.records import language, languages, read_records, tell_usable_rows, text, texts
    from grrm.gqm.groups import TranslationTask

    cells: list[Cell] = [("src_text", text, "text"), ("trg_text", text, "text, the reference")]
    cells += [("src_lang", language, "a language (or give --src-lang)")] * (src_lang is None)
    cells += [("trg_lang", language, "a language (or give --trg-lang)")] * (trg_lang is None)
    cells += [] if samples_key is None else [(samples_key, texts, "a list of texts")]
    records = tell_usable_rows(read_records(path), cells).records
    sources, references = (records.column(name, text, "text") for name in ("src_text", "trg_text"))
    src_langs, trg_langs = languages(records, "src_lang", src_lang), languages(records, "trg_lang", trg_lang)
    samples = [] if samples_key is None else records.column(samples_key, texts, "a list of texts")
    return [*map(TranslationTask, sources, src_langs, trg_langs, references)], samples


def _judged(
    open_judge: Callable[[], Judge], groups: Sequence[Group], batch_rows: int, metrics: JudgeMetrics
) -> list[Verdict]:
    """One verdict per group; the cost is told. Raises UserError where no group has a score."""
    from collections import Counter

    from grrm.inference.rank import judge_in_batches
    from grrm.tracking.console import StepProgress

    judge, before, start_s = open_judge(), metrics.values(), time.perf_counter()
    with closing(StepProgress(len(groups), description="probing")) as progress:
        verdicts = judge_in_batches(judge, groups, batch_rows, lambda done, _: progress.update(done))
    click.echo(judge_cost(len(groups), time.perf_counter() - start_s, before, metrics.values()), err=True)
    statuses = Counter(status for verdict in verdicts for status in verdict.statuses)
    unread = unread_replies(
        [verdict.statuses for verdict in verdicts],
        [verdict.rejections for verdict in verdicts],
        [verdict.analysis for verdict in verdicts],
    )
    if not any(status.is_scored for status in statuses):
        counts = ", ".join(f"{status.value} {count}" for status, count in statuses.most_common())
        cause = unread or "mend the cause and probe it again"
        raise UserError(f"judge {judge.name} has scored nothing ({counts}): {cause}")
    if unread:
        click.echo(unread, err=True)
    if n_open := sum(statuses[status] for status in UNANSWERED):
        of_all = f"no server answered for {n_open} of {statuses.total()} candidates"
        click.echo(f"{of_all}: they count as not scored; start it again for all of them", err=True)
    return verdicts


def _show(title: str, report: ProbeReport, note: str | None) -> None:
    from grrm.cli.results import show_table

    of_all = [scores["all"] for scores in report.probes.values()]
    is_unread = sum(scores.unscored for scores in of_all) > sum(scores.decided for scores in of_all)
    is_unread = is_unread and UNANSWERED.isdisjoint(report.statuses)
    show_table(
        title,
        _HEADERS,
        [
            [
                *(name if of_pair == "all" else "", of_pair),
                *mean_and_interval(scores.right, 3),
                mean_and_interval(scores.margin, 2)[0],
                percent(scores.tied),
                *map(str, (scores.decided, scores.refused, scores.unscored, scores.not_applicable)),
            ]
            for name, by_pair in report.probes.items()
            for of_pair, scores in sorted(by_pair.items(), key=lambda item: (item[0] != "all", item[0]))
            if of_pair == "all" or len(by_pair) > 2
        ],
        [
            "right: the reference scores higher, ties as half; refused: a guard did not show the judge the damage",
            *([note] if note else []),
            *([_UNREAD] * is_unread),
            f"won by the first candidate shown: {' '.join(mean_and_interval(report.first_wins, 3))}",
            f"decided alike in both orders: {' '.join(mean_and_interval(report.order_consistency, 3))}",
            f"correlation of score and length: {' '.join(mean_and_interval(report.length_correlation, 3))}",
            f"tied: {percent(report.tied)}",
            report.verdict(),
        ],
    )
