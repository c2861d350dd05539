"""Human scores in a file with a row per translation, or of a campaign of annotation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import Row, sound_rows
from grrm.errors import UserError, require_known
from grrm.evaluation.candidate_pairs import Floats
from grrm.evaluation.human_gold.campaigns import appraise_rows, is_pearmut, pearmut_rows
from grrm.evaluation.human_gold.gold import HumanGold, mean_scores
from grrm.gqm.languages import language_pair

# Our names of columns, and what others call them; the first that a file has counts.
COLUMNS = {
    "src_text": ("src_text", "src", "source"),
    "trg_text": ("mt", "translation", "trg_text", "target"),  # `trg_text` beside one of the first is the reference
    "system": ("system", "model"),
    "gold": ("gold", "score"),
    "reference": ("reference", "ref"),
    "annotator": ("annotator", "rater", "user_id"),
    "domain": ("domain",),
    "segment": ("segment", "segment_id", "seg_id", "item_id"),
    "lp": ("lp", "language_pair"),
    "src_lang": ("src_lang",),
    "trg_lang": ("trg_lang",),
}
NEEDED = ("src_text", "trg_text", "system", "gold")
_ROUNDING = 1e-3  # of a judge that scored one text several times
_NO_SCORE = ("", "none", "null", "nan", "na")


@dataclass(slots=True)
class _Segment:
    """A source with the outputs of its systems and, by system and annotator, their scores."""

    source: str
    reference: str | None = None
    domain: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    gold: dict[tuple[str, str], float] = field(default_factory=dict)
    scores: dict[tuple[str, str], float] = field(default_factory=dict)  # by system and judge


def read_rows(
    path: Path,
    *,
    gold: str | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    excluded: Sequence[str] = (),
    scores: Sequence[str] = (),
    batches: Path | None = None,
) -> list[HumanGold]:
    """Read the language pairs of a file, in the order in which they begin.

    Rows of the same source, or of the same `segment` where there is such a column, are one group; where a system
    translates the same source again, another begins. The scores of several annotators are averaged.

    Args:
        path: as in `open_table`, with the columns `NEEDED` or what else `COLUMNS` names, or the log of a Pearmut
            campaign.
        gold: the column of people's scores.
        languages: source and target language of rows without columns that say them.
        excluded: systems that do not count.
        scores: columns that hold the scores of judges, in one row of a translation or in each.
        batches: the texts of an Appraise campaign, whose scores `path` has.

    Raises:
        UserError: for a missing column, and for a value that cannot be used, with its row.
    """
    segments: dict[tuple[str, str], dict[tuple[object, ...], _Segment]] = {}
    repeated: Counter[tuple[object, ...]] = Counter()
    systems, pairs = set[str](), dict[str, tuple[str, str]]()
    for number, row in enumerate(_plain_rows(path, gold, scores, batches), start=1):
        where = f"{path} row {number}"
        pair = _language_pair(row, languages, where)
        pair = pairs.setdefault(language_pair(*pair), pair)  # as the first row writes it
        source, system, annotator = (_text(row, name) or "" for name in ("src_text", "system", "annotator"))
        system, annotator = system.strip(), annotator.strip()
        if not source.strip() or not system or not isinstance(row.get("trg_text"), str):
            raise UserError(f"{where} lacks the source, the system or its text; write all three, or leave the row out")
        systems.add(system)
        if system in excluded:
            continue
        key = (source, _text(row, "segment"))
        repeated[pair, key, system, annotator] += 1
        segment = segments.setdefault(pair, {}).setdefault(
            (*key, repeated[pair, key, system, annotator]),
            _Segment(source),
        )
        segment.reference = segment.reference or _text(row, "reference")
        segment.domain = segment.domain or _text(row, "domain")
        if segment.outputs.setdefault(system, row["trg_text"]) != row["trg_text"]:
            raise UserError(
                f"{where} has another text of {system} than an earlier row of the source; mend one of them, or number "
                "sources that occur again in a column segment"
            )
        segment.gold[system, annotator] = _number(row.get("gold"), "gold", where)
        for name in scores:
            score = _number(row.get(name), name, where)
            if math.isnan(score):
                continue
            if not math.isclose(segment.scores.setdefault((system, name), score), score, rel_tol=_ROUNDING):
                raise UserError(f"{where} has another {name} of {system} than an earlier row of it; mend one of them")
    for system in excluded:
        require_known(f"system of {path}", system, sorted(systems))
    if not segments:
        raise UserError(f"{path} has no rows; give a row for each translation")
    return [_gold(path, pair, list(own.values()), scores) for pair, own in segments.items()]


def _gold(path: Path, pair: tuple[str, str], segments: Sequence[_Segment], scores: Sequence[str]) -> HumanGold:
    systems = sorted({system for segment in segments for system in segment.outputs})
    if len(systems) < 2:
        raise UserError(f"{path} has one system of {'-'.join(pair)}, {systems[0]}; a card compares two or more")
    names = sorted({annotator for segment in segments for _, annotator in segment.gold})
    annotators = {name: _table(systems, [segment.gold for segment in segments], name) for name in names}
    gold_PG = mean_scores(list(annotators.values()))
    if np.isnan(gold_PG).all():
        raise UserError(f"{path} has no human scores of {'-'.join(pair)}; add them, or name their column: --gold-key")
    return HumanGold(
        path.name,
        *pair,
        [segment.source for segment in segments],
        [segment.reference for segment in segments],
        [segment.domain for segment in segments],
        systems,
        [[segment.outputs.get(system) for system in systems] for segment in segments],
        gold_PG,
        annotators if len(annotators) > 1 else {},
        {name: _table(systems, [segment.scores for segment in segments], name) for name in scores},
    )


def _table(systems: Sequence[str], segments: Sequence[Mapping[tuple[str, str], float]], name: str) -> Floats:
    return np.array([[segment.get((system, name), np.nan) for system in systems] for segment in segments])


def _plain_rows(path: Path, gold: str | None, scores: Sequence[str], batches: Path | None) -> Iterator[Row]:
    """The rows under our names of columns."""
    table = open_table(batches or path)
    rows = sound_rows(table)
    if not table.names:
        next(sound_rows(table), None)  # raises where the first row cannot be read
    if batches is not None or is_pearmut(table.names):
        if scores:
            raise UserError(f"{path} has no scores {', '.join(scores)}; give their file, as --scores NAME=FILE")
        yield from pearmut_rows(path, rows) if batches is None else appraise_rows(path, rows)
        return
    named = {name: next((other for other in others if other in table.names), None) for name, others in COLUMNS.items()}
    if named["trg_text"] != "trg_text" and named["reference"] is None and "trg_text" in table.names:
        named["reference"] = "trg_text"  # as in what `grrm translate` writes
    named = {**named, **({} if gold is None else {"gold": gold}), **{name: name for name in scores}}
    missing = [name for name in (*NEEDED, *scores) if named[name] not in table.names]
    if missing:
        raise UserError(
            f"{path} has no column {' and no '.join(str(named[name] or name) for name in missing)} among "
            f"{', '.join(table.names)}; rename its columns"
        )
    for row in rows:
        yield {name: row.get(column) for name, column in named.items() if column is not None}


def _language_pair(row: Row, languages: tuple[str | None, str | None], where: str) -> tuple[str, str]:
    first, _, second = str(row.get("lp") or "").partition("-")
    own = (row.get("src_lang") or first, row.get("trg_lang") or second)
    source, target = (override or language for override, language in zip(languages, own, strict=True))
    if not source or not target:
        raise UserError(f"{where} does not say its languages; add columns src_lang and trg_lang, or give --src-lang")
    return str(source), str(target)


def _text(row: Row, name: str) -> str | None:
    value = row.get(name)
    return None if value is None or value == "" or value != value else str(value)  # NaN, which pandas writes for none


def _number(value: Any, name: str, where: str) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in _NO_SCORE):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{where} has {str(value)[:40]!r} as {name}; write a number, or nothing") from error
    if math.isinf(number):
        raise UserError(f"{where} has an infinite {name}; write a number, or nothing")
    return number
