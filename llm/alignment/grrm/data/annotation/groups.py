"""Groups of sampled translations with gold scores and analyses: the parquet file that the judge's converters read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from grrm.data.annotation.damage import damage
from grrm.data.annotation.gold import TOP, GoldScale, chrf_scorer
from grrm.data.annotation.pieces import analyse_candidate, analyse_group
from grrm.data.atomic import check_writable
from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.documents import LOCATION, location_columns, location_of, with_location
from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import TranslationRow, check_parquet, count_rows, iter_raw_rows, write_rows
from grrm.errors import UserError, mistake_in
from grrm.gqm.fences import FENCED
from grrm.gqm.languages import MAX_CANDIDATES_TRAINED, display_name

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in COLUMNS),
        ("mt_texts", pa.list_(pa.string())),
        ("scores", pa.list_(pa.int64())),
        ("analysis", pa.string()),
        ("analyses", pa.list_(pa.string())),
    ]
)
_SAMPLED = (*COLUMNS, "mt_texts")


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A row's values, and some of its translations with their chrF."""

    row: TranslationRow
    candidates: tuple[tuple[str, float], ...]
    location: tuple[Any, ...] = ()  # document and position, if the file has them


def annotate_groups(
    parquet: Path,
    out: Path,
    *,
    group_size: int = 4,
    groups_per_row: int = 1,
    mixed_share: float = 0.0,
    smaller_share: float = 0.0,
    scale: Path | None = None,
    fit_scale: Path | None = None,
    top_score: int = TOP,
    seed: int = 0,
) -> ConversionReport:
    """Form groups from sampled translations and score them with chrF against the reference.

    Reads src_text, trg_text, src_lang, trg_lang and mt_texts (as `grrm translate --sampling-n` writes them); writes
    the same columns with one row per group, its scores, its analysis, and one analysis per candidate for a judge that
    sees no other. Document and position are carried over. Rows that give no group are left out and counted.

    Scores are linear in chrF, on the scale of the file `scale`, or spread evenly from 0 to `top_score` over this
    file's groups, which writes that scale to `fit_scale`.

    Args:
        parquet: rows with sampled translations
        out: parquet file of the groups
        group_size: different translations that a judge may be shown, fewer (at least two) where there are no more
        groups_per_row: most groups of a row, which has no group twice
        mixed_share: share of groups half of whose translations are not the policy's: the reference, damaged
            references, the source as it is
        smaller_share: share of groups of any smaller size from two on; a judge that sees no such group writes scores
            of candidates that are not there
        scale: JSON file of the scale to use
        fit_scale: where to write the scale of this file
        top_score: highest score of a fitted scale; 9 makes every score one digit
        seed: of everything that is random

    Raises:
        UserError: settings that cannot work, or a file that cannot be read, scored or written
    """
    _check(group_size, groups_per_row, (mixed_share, smaller_share), scale, fit_scale, top_score)
    _check_output(out, fit_scale)
    fixed = GoldScale.linear() if scale is None else GoldScale.load(scale)
    rejected: list[RejectedRow] = []
    maker = _GroupMaker(group_size, groups_per_row, mixed_share, smaller_share, seed)
    columns = (*_SAMPLED, *location_columns(parquet))
    rows = tqdm(
        iter_raw_rows(parquet, columns, LOCATION),
        total=count_rows(parquet, columns, LOCATION),
        desc=f"score {parquet.name}",
        unit="row",
        disable=None,
    )
    groups = maker.groups(rows, rejected)
    first = next(groups, None)
    if first is None:
        why = f", the first is left out because of: {rejected[0].reason}" if rejected else ""
        raise UserError(f"{parquet} has no row to make a group of{why}; sample more translations")
    groups = chain([first], groups)
    if fit_scale is not None:  # the only case in which all of them have to be there at once
        scored = list(groups)
        fixed = GoldScale.spread((chrf for group in scored for _, chrf in group.candidates), top_score)
        fixed.save(fit_scale)
        groups = iter(scored)
    annotated = (_annotated(group, fixed) for group in groups)
    written = write_rows(out, annotated, with_location(SCHEMA, columns[len(_SAMPLED) :]))
    return ConversionReport(out, written, tuple(rejected))


def _check(
    group_size: int,
    groups_per_row: int,
    shares: tuple[float, float],
    scale: Path | None,
    fit_scale: Path | None,
    top_score: int,
) -> None:
    if not 2 <= group_size <= MAX_CANDIDATES_TRAINED:
        raise UserError(f"group_size {group_size} is not from 2 to {MAX_CANDIDATES_TRAINED}; choose one that is")
    if groups_per_row < 1 or not all(0 <= share <= 1 for share in shares):
        raise UserError("groups_per_row must be at least 1, mixed_share and smaller_share from 0 to 1")
    if not 1 <= top_score <= TOP or (top_score != TOP and fit_scale is None):
        raise UserError(f"top_score {top_score} needs fit_scale and a number from 1 to {TOP}")
    if scale is not None and fit_scale is not None:
        raise UserError("scale and fit_scale exclude each other: read a scale, or fit one to this file")


def _check_output(out: Path, fit_scale: Path | None) -> None:
    check_parquet(out, "groups")
    check_writable(out, fit_scale)
    if fit_scale is not None and fit_scale.resolve() == out.resolve():
        raise UserError(f"{out} cannot hold the groups and their scale; give two files")


class _GroupMaker:
    """Draws groups row by row; keeps the last reference of each language, whose words damaged texts borrow."""

    def __init__(
        self, group_size: int, groups_per_row: int, mixed_share: float, smaller_share: float, seed: int
    ) -> None:
        self._group_size, self._groups_per_row = group_size, groups_per_row
        self._mixed_share, self._smaller_share = mixed_share, smaller_share
        self._rng = random.Random(seed)
        self._chrf = chrf_scorer()
        self._last_reference: dict[str, str] = {}

    def groups(self, rows: Iterable[tuple[int, tuple[Any, ...]]], rejected: list[RejectedRow]) -> Iterator[ScoredGroup]:
        for number, raw in rows:
            values, translations, location = TranslationRow(*raw[:4]), raw[4], raw[5:]
            fault = _fault(values, translations, location)
            if fault is None:
                sampled = _showable(translations)
                seen: set[frozenset[str]] = set()
                for _ in range(self._groups_per_row):
                    texts = self._draw(values, sampled)
                    if len(texts) < 2 or frozenset(texts) in seen:
                        continue
                    seen.add(frozenset(texts))
                    scored = tuple((text, self._chrf(text, values.trg_text)) for text in texts)
                    yield ScoredGroup(values, scored, location_of(*location) if location else ())
                if not seen:
                    fault = "fewer than two different translations that a judge may be shown"
                self._last_reference[values.trg_lang] = values.trg_text
            if fault is not None:
                rejected.append(RejectedRow(number, fault))

    def _draw(self, values: TranslationRow, sampled: Sequence[str]) -> list[str]:
        size = self._group_size
        if size > 2 and self._smaller_share and self._rng.random() < self._smaller_share:
            size = self._rng.randrange(2, size)
        if self._rng.random() >= self._mixed_share:
            return self._rng.sample(sampled, min(size, len(sampled)))
        source, reference, _, trg_lang = values
        other = self._last_reference.get(trg_lang, reference)
        foreign = _showable([reference, source, *(damage(reference, other, self._rng) for _ in range(3))])
        n_foreign = min(len(foreign), size // 2)
        chosen = self._rng.sample(foreign, n_foreign)
        own = [text for text in sampled if text not in chosen]
        chosen += self._rng.sample(own, min(size - n_foreign, len(own)))
        self._rng.shuffle(chosen)
        return chosen


def _showable(texts: Sequence[str | None]) -> list[str]:
    """The different texts that may stand in a judge's prompt, in their order."""
    stripped = (text.strip() for text in texts if text is not None)
    return [text for text in dict.fromkeys(stripped) if text and FENCED.is_plain(text)]


def _fault(values: TranslationRow, translations: Any, location: tuple[Any, ...]) -> str | None:
    for name, value in zip(COLUMNS, values, strict=True):
        if not isinstance(value, str) or not value.strip():
            return f"{name} is empty"
    for name in ("src_lang", "trg_lang"):
        if mistake := mistake_in(display_name, getattr(values, name)):
            return f"{name}: {mistake.rstrip('.')}"
    if not isinstance(translations, list) or not all(text is None or isinstance(text, str) for text in translations):
        return "mt_texts is not a list of texts"
    return mistake_in(location_of, *location)


def _annotated(group: ScoredGroup, scale: GoldScale) -> tuple[Any, ...]:
    texts = [text for text, _ in group.candidates]
    scores = [scale.score(chrf) for _, chrf in group.candidates]
    reference = group.row.trg_text
    singly = [analyse_candidate(reference, text) for text in texts]
    return (*group.row, texts, scores, analyse_group(reference, texts, scores), singly, *group.location)
