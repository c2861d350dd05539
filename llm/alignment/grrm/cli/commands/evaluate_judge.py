"""`grrm eval judge`: a judge's card, its agreement with people beside baselines, sentinels and the annotators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.devices import SharedCommand, devices_option
from grrm.cli.judge_options import FLAGS, choose_judge, judge_options
from grrm.cli.options import COUNT, FILE, explicit_model_options, is_explicit, language_options, refuse_ineffective
from grrm.cli.reports import percent
from grrm.entry import read_assignments
from grrm.errors import UserError, require_known

if TYPE_CHECKING:
    from grrm.evaluation.candidate_pairs import Floats
    from grrm.evaluation.human_gold.card import CardRow
    from grrm.evaluation.human_gold.gold import HumanGold

_NOTES = (
    "#: cluster of judges that do not differ significantly in acc_eq; acc_eq: pairwise accuracy, ties calibrated",
    "item: within sources; SPA: soft pairwise accuracy of systems; r systems: correlation of their means",
)
_HEADERS = (
    *("#", "judge", "kind", "acc_eq #", "95 % interval", "epsilon #", "tau-b item #", "tau-b #", "r item #", "r #"),
    *("SPA #", "r systems #", "scored #"),
)
_OF_GOLD = ("gold_key", "pairs", "excluded", "annotators", "src_lang", "trg_lang", "reference", "batches")


@click.command("judge", cls=SharedCommand)
@click.argument("gold", type=FILE)
@judge_options
@language_options
@click.option("--name", help="Name of the judge in the card.  [default: that of --judge]")
@click.option(
    "--scores",
    "score_files",
    multiple=True,
    metavar="NAME[=FILE]",
    help="Scores of another judge, a line per system and segment; {lp} in FILE stands for the language pair. Without "
    "FILE a metric of the test set, or a column of the rows. Repeat for several.",
)
@click.option("--save-scores", type=FILE, help="Write the judge's scores to this file, for --scores; {lp} as there.")
@click.option("--gold-key", help="Name of the human scores, or their column.  [default: mqm, or the only ones; gold]")
@click.option(
    "--language-pair", "pairs", multiple=True, metavar="SRC-TRG", help="Only this pair; repeatable.  [default: all]"
)
@click.option("--batches", type=FILE, help="GOLD is what Appraise exports as CSV; this .json file has the texts.")
@click.option("--reference", metavar="NAME", help="Reference of a test set; it is not scored.  [default: the first]")
@click.option("--without", "excluded", multiple=True, metavar="SYSTEM", help="Leave out a system; repeat for several.")
@click.option(
    "--annotator",
    "annotators",
    multiple=True,
    metavar="NAME",
    help="Scores or ratings of a test set by one annotator.  [default: its ratings by rater]",
)
@click.option(
    "--resamples", type=COUNT, default=1000, show_default=True, help="Resamples, for intervals and significance."
)
@click.option("--out", type=FILE, help="Write the card to this .json file.")
@click.option("--html", type=FILE, help="Write the card as a page.")
@devices_option
def judge(
    gold: Path,
    judge: str,
    name: str | None,
    score_files: tuple[str, ...],
    save_scores: Path | None,
    out: Path | None,
    html: Path | None,
    resamples: int,
    batch_rows: int,
    judge_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare judges with people's scores in GOLD.

    GOLD is the folder of a test set of WMT's metrics task (mt-metrics-eval-v2/wmt23), a file with a row per translation
    (src_text, trg_text, system, gold, and maybe annotator, reference, domain, src_lang, trg_lang), the log of a Pearmut
    campaign, or with --batches the scores of an Appraise campaign.

    The judge of --judge or --model sees all systems' translations of a source as one group; without these options only
    --scores are compared. The card also has consensus, chrF and BLEU, sentinels that see only lengths, and the
    agreement of each annotator with the others. Judges of one cluster do not differ significantly.
    """
    from grrm.data.atomic import check_writable, write_json
    from grrm.evaluation.human_gold.card import card_rows, mean_rows
    from grrm.evaluation.human_gold.mtme_folder import write_segment_scores
    from grrm.tracking.model_card import JUDGE_CARD_FORMAT

    check_writable(out, html)
    is_judged = is_explicit("--judge") or bool(explicit_model_options())
    names = [assignment.partition("=")[0] for assignment in score_files] + [name or judge] * is_judged
    if len(names) > len({*names}):
        raise UserError(f"two judges have one name ({', '.join(names)}); give others with --name or --scores NAME=FILE")
    sets = _read_gold(gold, score_files, **{key: options.pop(key) for key in _OF_GOLD})
    scores = [_file_scores(gold, test_set, score_files) for test_set in sets]
    if not is_judged:
        refuse_ineffective(
            (*FLAGS, "chat_template", "judge_option", "batch_rows", "name", "save_scores", "devices", "batch_deadline"),
            "without --judge or --model",
        )
    else:
        saved = [] if save_scores is None else _saved(save_scores, sets)
        judged = _judge_sets(judge, sets, judge_options, batch_rows, options)
        for own, judged_PG in zip(scores, judged, strict=True):
            own[name or judge] = judged_PG
        for path, test_set, judged_PG in zip(saved, sets, judged, strict=False):
            write_segment_scores(path, test_set.systems, judged_PG)
    rows = [
        row
        for test_set, own in zip(sets, scores, strict=True)
        for row in card_rows(test_set, own, n_resamples=resamples)
    ]
    rows += mean_rows(rows)
    card = {
        "format": JUDGE_CARD_FORMAT,
        "gold": [test_set.record() for test_set in sets],
        "resamples": resamples,
        "rows": [row.record() for row in rows],
    }
    _show(rows, sets)
    if out is not None:
        write_json(out, card)
    if html is not None:
        from grrm.tracking.report.page import write_card_page

        write_card_page(card, html)
        click.echo(html.resolve().as_uri(), err=True)


def _read_gold(
    path: Path,
    score_files: Sequence[str],
    *,
    gold_key: str | None,
    pairs: Sequence[str],
    excluded: Sequence[str],
    annotators: Sequence[str],
    src_lang: str | None,
    trg_lang: str | None,
    reference: str | None,
    batches: Path | None,
) -> list[HumanGold]:
    from grrm.evaluation.human_gold.mtme_folder import is_mtme, language_pairs, read_mtme, system_names
    from grrm.evaluation.human_gold.rows import read_rows
    from grrm.gqm.languages import language_pair

    if not path.exists() and path.parts[0].startswith("mt-metrics-eval"):
        raise UserError(
            f"{path} does not exist; get WMT's test sets with `python -m mt_metrics_eval.mtme --download` of "
            "google-research/mt-metrics-eval, and give the folder of one"
        )
    if is_mtme(path):
        refuse_ineffective(("src_lang", "trg_lang", "batches"), "with a test set, whose files name the languages")
        if unreadable := next((pair for pair in pairs if {*pair} & {*"/*?["}), None):
            raise UserError(f"--language-pair {unreadable} is none; write its languages as in en-de")
        for system in excluded:
            require_known(f"system of {path}", system, system_names(path))
        names = {"name": gold_key, "reference": reference}
        return [
            read_mtme(path, pair, **names, excluded=excluded, annotators=annotators)
            for pair in dict.fromkeys(pairs) or language_pairs(path, gold_key)
        ]
    refuse_ineffective(("reference", "annotator"), "with rows, whose columns say it")
    columns = [name for name in score_files if "=" not in name]
    languages = (src_lang, trg_lang)
    sets = read_rows(path, gold=gold_key, languages=languages, excluded=excluded, scores=columns, batches=batches)
    requested = {language_pair(*pair.partition("-")[::2]): pair for pair in pairs}
    by_pair = {language_pair(test_set.src_lang, test_set.trg_lang): test_set for test_set in sets}
    if missing := [requested[name] for name in sorted(requested.keys() - by_pair.keys())]:
        raise UserError(f"{path} has no rows of {', '.join(missing)}; leave out --language-pair, or mend it")
    return [test_set for name, test_set in by_pair.items() if not pairs or name in requested]


def _file_scores(path: Path, gold: HumanGold, score_files: Sequence[str]) -> dict[str, Floats]:
    """The scores [P, G] of each judge of --scores."""
    from grrm.evaluation.human_gold.mtme_folder import metric_scores, read_segment_scores, scores_of

    scores = dict(gold.scores)
    for assignment in score_files:
        name, _, file = assignment.partition("=")
        if file:
            by_system = read_segment_scores(_of_pair(file, gold))
        elif name in scores:
            continue
        else:
            by_system = metric_scores(path, gold.language_pair, name)
        if by_system.keys().isdisjoint(gold.systems):
            raise UserError(
                f"--scores {assignment} has scores of {', '.join(sorted(by_system)) or 'nothing'} and none of "
                f"{', '.join(gold.systems)}, the systems of {gold.language_pair}; give these names"
            )
        scores[name] = scores_of(by_system, gold.systems, len(gold.sources), f"{name} of {gold.language_pair}")
    return scores


def _saved(path: Path, sets: Sequence[HumanGold]) -> list[Path]:
    """The file of --save-scores of each test set, which can be written."""
    from grrm.data.atomic import check_writable

    paths = [_of_pair(path, test_set) for test_set in sets]
    if len({*paths}) < len(sets):
        raise UserError(f"--save-scores {path} is one file for {len(sets)} language pairs; write {{lp}} into its name")
    check_writable(*paths)
    return paths


def _of_pair(path: str | Path, gold: HumanGold) -> Path:
    if "{lp}" in str(path) and "/" in gold.language_pair:
        raise UserError(f"{gold.language_pair!r} of {gold.origin} cannot stand in {path}; write languages as codes")
    return Path(str(path).replace("{lp}", gold.language_pair))


def _judge_sets(
    name: str, sets: Sequence[HumanGold], judge_options: Sequence[str], batch_rows: int, flags: dict[str, Any]
) -> list[Floats]:
    """The scores [P, G] of each test set by a judge, which is opened once and sees all systems' outputs together."""
    from grrm.cli.verdict_columns import SCORES, judged
    from grrm.judges.metrics import JudgeMetrics
    from grrm.judges.registry import spec_of

    groups_of = [test_set.groups() for test_set in sets]
    flat = [group for groups in groups_of for group in groups]
    numbered = [replace(group, group_id=str(number)) for number, group in enumerate(flat)]
    spec, metrics = spec_of(name), JudgeMetrics()
    if spec.of_answers:
        raise UserError(f"--judge {name} judges answers, and these are translations; choose another judge")
    if spec.reference == "needed" and not all(group.task.reference for group in flat):
        raise UserError(f"--judge {name} needs a reference for every source; choose another judge")
    judge = choose_judge(spec, numbered, metrics, flags, read_assignments(judge_options, "judge option") or {})
    remedy = "they count as not scored; start it again for all of them"
    scores = iter(judged(judge, numbered, batch_rows, metrics, {}, remedy)[SCORES])
    return [
        test_set.judged(groups, [next(scores) for _ in groups])
        for test_set, groups in zip(sets, groups_of, strict=True)
    ]


def _show(rows: Sequence[CardRow], sets: Sequence[HumanGold]) -> None:
    from grrm.cli.results import show_table

    sizes = {
        test_set["language_pair"]: f"gold: {test_set['scored_translations']} translations of {test_set['sources']} "
        f"sources by {len(test_set['systems'])} systems"
        for test_set in (own.record() for own in sets)
    }
    titles = dict.fromkeys((row.language_pair, row.domain) for row in rows)
    for pair, domain in titles:
        show_table(
            f"{pair}{f', {domain}' if domain else ''}",
            _HEADERS,
            [_cells(row) for row in rows if (row.language_pair, row.domain) == (pair, domain)],
            (*_NOTES, *([sizes[pair]] if pair in sizes and domain is None else [])),
        )


def _cells(row: CardRow) -> list[str]:
    own = row.agreement
    interval = "-" if own.interval is None else " to ".join(map(_number, own.interval))
    return [
        "-" if row.cluster is None else str(row.cluster),
        row.name,
        row.kind,
        _number(own.tie_calibrated_accuracy),
        interval,
        "-" if own.tie_threshold is None else f"{own.tie_threshold:.3g}",
        *map(_number, (own.kendall_tau_b_by_source, own.kendall_tau_b, own.pearson_by_source, own.pearson)),
        *map(_number, (own.soft_pairwise_accuracy, own.pearson_of_systems)),
        percent(own.coverage),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.3f}"  # not -0.000
