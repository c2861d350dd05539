"""The files of `grrm eval ranking`: what judges said of groups with gold scores, bad rows left out and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from grrm.cli.records import (
    Records,
    check_lengths,
    count,
    lists_of_scores,
    names,
    optional,
    read_records,
    scores,
    sort_out,
    text,
    texts,
)
from grrm.cli.verdict_columns import SCORES
from grrm.data.layouts.table import RowError, counted
from grrm.errors import UserError
from grrm.evaluation.ranking import JudgedGroup
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.gqm.languages import language_pair
from grrm.judges.consensus import ConsensusJudge

CONSENSUS = "consensus"


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """The usable groups of one judge's file by row number (from 1), and why other rows were left out.

    `samples` has the texts of those rows that say them.
    """

    name: str
    n_rows: int
    groups: dict[int, JudgedGroup]
    excluded: Counter[str]
    samples: dict[int, Group] = field(default_factory=dict)

    def summary(self) -> str:
        """One line: rows that are scored, rows left out by reason."""
        reasons = f" ({counted(self.excluded)})" if self.excluded else ""
        return f"{len(self.groups)} rows scored, {self.excluded.total()} left out{reasons}"


def judge_names(files: Sequence[Path]) -> list[str]:
    """The names of the judges: their files' names without suffix, or the paths where these are not different."""
    stems = [path.stem for path in files]
    if len(set(stems)) == len(stems):
        return stems
    if len(set(files)) < len(files):
        raise UserError(f"a file is given twice in {', '.join(map(str, files))}; give each judge's file once")
    return [str(path) for path in files]


def read_judged(path: Path, name: str, *, gold_key: str, score_key: str, system_key: str | None) -> JudgedFile:
    """The groups of a file; rows that cannot be used are left out, logged and counted.

    Raises UserError for a file that cannot be read or has no usable row.
    """
    records = read_records(path)
    groups, reasons = sort_out(records, lambda number: _group(records, number, gold_key, score_key, system_key))
    samples = {number: group for number in groups if (group := _samples(records, number, len(groups[number].gold)))}
    return JudgedFile(name, len(records.rows), groups, reasons, samples)


def consensus_beside(judges: Sequence[JudgedFile]) -> JudgedFile | None:
    """The agreement of the samples (chrF) as a judge of the same groups, from the texts of the first complete file.

    None where no file is complete; what is missing is named on stderr.
    """
    judge = next((judge for judge in judges if judge.groups.keys() <= judge.samples.keys()), None)
    if judge is None:
        n_missing = min(len(judge.groups.keys() - judge.samples.keys()) for judge in judges)
        click.echo(
            f"no consensus beside the judges: {n_missing} of {len(judges[0].groups)} rows lack mt_texts, one text or "
            "null per score; run `grrm rank` on rows that have them",
            err=True,
        )
        return None
    verdicts = ConsensusJudge().judge([judge.samples[number] for number in judge.groups])
    groups = {
        number: replace(group, judged=verdict.scores, orders=(), tokens=None)
        for (number, group), verdict in zip(judge.groups.items(), verdicts, strict=True)
    }
    return JudgedFile(CONSENSUS, judge.n_rows, groups, judge.excluded)


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
            expected, other = first.groups[number], judge.groups[number]
            if (expected.language_pair, expected.gold) != (other.language_pair, other.gold):
                raise UserError(
                    f"row {number} has other languages or gold scores in {judge.name} than in {first.name}; give files "
                    "that `grrm rank` wrote for the same rows"
                )
    if not common:
        raise UserError(f"no row can be used in all of {', '.join(judge.name for judge in judges)}; mend the files")
    reduced = []
    for judge in judges:
        excluded = judge.excluded.copy()
        if len(judge.groups) > len(common):
            excluded["left out for another judge"] = len(judge.groups) - len(common)
        groups = {number: judge.groups[number] for number in common}
        reduced.append(replace(judge, groups=groups, excluded=excluded))
    return reduced


def _samples(records: Records, number: int, n_candidates: int) -> Group | None:
    try:
        sample_texts = records.cell(number, "mt_texts", texts, "a list of texts")
    except RowError:
        return None
    if len(sample_texts) != n_candidates:
        return None
    row = records.rows[number - 1]
    candidates = tuple(Candidate(str(i), sample or "", sample) for i, sample in enumerate(sample_texts))
    return Group(str(number), TranslationTask("", row["src_lang"], row["trg_lang"]), candidates)


def _group(records: Records, number: int, gold_key: str, score_key: str, system_key: str | None) -> JudgedGroup:
    gold = records.cell(number, gold_key, scores, "a list of numbers")
    description = "a list of numbers, null where there is none; run `grrm rank` first"
    judged = records.cell(number, score_key, scores, description)
    check_lengths(records, number, f"{gold_key} and {score_key}", [gold, judged])
    languages = language_pair(*(records.cell(number, name, text, "a language") for name in ("src_lang", "trg_lang")))
    systems = None if system_key is None else records.cell(number, system_key, names, "a list of different names")
    if systems is not None:
        check_lengths(records, number, f"{gold_key} and {system_key}", [gold, systems])
    if score_key != SCORES:  # another judge's scores: the orders and tokens are not its own
        return JudgedGroup(languages, gold, judged, systems=systems)
    orders = records.cell(number, "judge_order_scores", optional(lists_of_scores), "lists of numbers, one per order")
    for order in orders or ():
        check_lengths(records, number, f"{gold_key} and judge_order_scores", [gold, order])
    tokens = records.cell(number, "judge_tokens", optional(count), "a number of tokens")
    return JudgedGroup(languages, gold, judged, orders or (), systems, tokens)
