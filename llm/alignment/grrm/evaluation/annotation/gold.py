"""Annotations of several people as one gold group per task, and how far the people agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import write_rows
from grrm.errors import UserErrors
from grrm.evaluation.annotation.intake import Annotation
from grrm.evaluation.bootstrap import Interval, bootstrap_interval
from grrm.evaluation.candidate_pairs import Floats, calibrated_pairs, score_array, tau_b_by_row
from grrm.evaluation.human_gold.gold import mean_scores
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import without_verdict

_SPAN = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("severity", pa.string()), ("annotator", pa.string())])
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in COLUMNS),
        ("mt_texts", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("analysis", pa.string()),
        ("spans", pa.list_(pa.list_(_SPAN))),
        ("annotators", pa.list_(pa.string())),
        ("group_id", pa.string()),
        ("document", pa.string()),
        ("position", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class AnnotatedGroup:
    """A task and what people said of it: scores [annotators, candidates] from 0 to 100, NaN for none."""

    task: Annotation
    annotators: tuple[str, ...]
    scores_AG: Floats
    spans: tuple[tuple[dict[str, Any], ...], ...]


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """An annotator beside the mean of all others, over the groups that another one scored too."""

    annotator: str
    n_groups: int
    accuracy: Interval | None
    kendall_tau_b: Interval | None


def gold_groups(annotations: Iterable[Annotation]) -> list[AnnotatedGroup]:
    """One group per task, its candidates in the order of the first annotation.

    Raises UserErrors where someone annotated a group twice, or two have different texts in it.
    """
    by_task: dict[tuple[str, str, str, str], dict[str, Annotation]] = {}
    mistakes = []
    for annotation in annotations:
        own = by_task.setdefault(
            (annotation.group_id, annotation.src_text, annotation.src_lang, annotation.trg_lang), {}
        )
        if annotation.annotator in own:
            mistakes.append(
                f"group {annotation.group_id} was annotated by {annotation.annotator} twice; give one of the files"
            )
        elif own and sorted(annotation.mt_texts) != sorted(next(iter(own.values())).mt_texts):
            mistakes.append(
                f"group {annotation.group_id} has other texts for {annotation.annotator}; give files of one export"
            )
        else:
            own[annotation.annotator] = annotation
    if mistakes:
        raise UserErrors("the annotations do not fit together", mistakes)
    return [_merged(own) for own in by_task.values()]


def _merged(own: Mapping[str, Annotation]) -> AnnotatedGroup:
    task = next(iter(own.values()))
    scores, spans = [], [[] for _ in task.mt_texts]  # type: list[list[float | None]], list[list[dict[str, Any]]]
    for name, annotation in own.items():
        positions: dict[str, list[int]] = {}
        for at, text in reversed([*enumerate(annotation.mt_texts)]):
            positions.setdefault(text, []).append(at)
        order = [positions[text].pop() for text in task.mt_texts]  # equal texts in the order in which they stand
        scores.append([annotation.scores[at] for at in order])
        for into, at in zip(spans, order, strict=True):
            into += [{**span.model_dump(), "annotator": name} for span in annotation.spans[at]]
    return AnnotatedGroup(task, tuple(own), score_array(scores), tuple(map(tuple, spans)))


def merged_scores(groups: Sequence[AnnotatedGroup], *, by: str = "mean") -> list[list[float | None]]:
    """The score of each candidate from 0 to 10, None where nobody gave one.

    It is the mean over annotators, with `by` "z" of their z-scores: each annotator's scores are brought to the mean and
    spread of all scores first, and cut off at the ends of the scale.
    """
    everything = np.concatenate([group.scores_AG.ravel() for group in groups])
    shift = {}
    if by == "z" and not np.isnan(everything).all():
        for name in {name for group in groups for name in group.annotators}:
            own = np.concatenate([_of(name, group) for group in groups])
            spread = np.nanstd(own) if not np.isnan(own).all() else 0.0
            factor = np.nanstd(everything) / spread if spread > 0 else 1.0
            shift[name] = (0.0 if np.isnan(own).all() else np.nanmean(own), factor, np.nanmean(everything))
    merged = []
    for group in groups:
        rows = []
        for name, scores_G in zip(group.annotators, group.scores_AG, strict=True):
            mean, factor, target = shift.get(name, (0.0, 1.0, 0.0))
            rows.append(np.clip((scores_G - mean) * factor + target, 0, 100))
        merged.append([None if np.isnan(score) else round(float(score) / 10, 6) for score in mean_scores(rows)])
    return merged


def write_gold(path: Path, groups: Sequence[AnnotatedGroup], scores: Sequence[Sequence[float | None]]) -> None:
    """Write the groups as `grrm data groups` writes its own, with all spans beside the scores.

    Where nobody marked an error in any group, people were asked for scores alone: then there are no spans, which would
    say that all is right, and analyses are empty.
    """
    is_marked = any(any(group.spans) for group in groups)
    rows = (_row(group, own, is_marked) for group, own in zip(groups, scores, strict=True))
    write_rows(path, rows, SCHEMA)


def _row(group: AnnotatedGroup, scores: Sequence[float | None], is_marked: bool) -> tuple[Any, ...]:
    task = group.task
    is_located = task.position is not None and task.position.is_integer()
    return (
        *(getattr(task, name) or "" for name in COLUMNS),
        task.mt_texts,
        scores,
        _analysis(group) if is_marked else "",
        group.spans if is_marked else None,
        group.annotators,
        task.group_id,
        *((task.document, task.position) if is_located else (None, None)),  # which converters refuse otherwise
    )


def _analysis(group: AnnotatedGroup) -> str:
    """The errors in words, a line per candidate, for a judge that writes before it scores."""
    lines = []
    for name, text, spans in zip(CANDIDATE_IDS, group.task.mt_texts, group.spans, strict=False):
        said = [_error(text, span) for span in spans]
        lines.append(f"{name}: {'; '.join(dict.fromkeys(said)) or 'no error'}")
    return "\n".join(lines)


def _error(text: str, span: Mapping[str, Any]) -> str:
    """An error in words, on one line; what a reader of verdicts would take for a part of one is not quoted."""
    severity, wrong = span["severity"] or "an", " ".join(text[span["start"] : span["end"]].split())
    if span["end"] == span["start"]:
        return f"{severity} omission"
    return f"{severity} error in “{wrong}”" if without_verdict(wrong) == wrong else f"{severity} error"


def people_agreement(groups: Sequence[AnnotatedGroup], *, n_resamples: int = 1000) -> list[PeopleAgreement]:
    """Each annotator beside the mean of the others; intervals resample groups. Empty where nobody shares a group."""
    agreed = []
    size = max((len(group.spans) for group in groups), default=0)
    for name in sorted(set(chain.from_iterable(group.annotators for group in groups))):
        shared = [group for group in groups if name in group.annotators and len(group.annotators) > 1]
        if not shared:
            continue
        own_PG, rest_PG = np.full((2, len(shared), size), np.nan)
        for row, group in enumerate(shared):
            at = group.annotators.index(name)
            own_PG[row, : len(group.spans)] = group.scores_AG[at]
            rest_PG[row, : len(group.spans)] = mean_scores(list(np.delete(group.scores_AG, at, axis=0)))
        pairs = calibrated_pairs(rest_PG, own_PG)
        tau_P = tau_b_by_row(rest_PG, own_PG)
        tau_P = tau_P[~np.isnan(tau_P)]
        agreed.append(
            PeopleAgreement(
                name,
                len(shared),
                None if pairs is None else pairs.interval(n_resamples),
                bootstrap_interval(tau_P, n_resamples=n_resamples) if len(tau_P) else None,
            )
        )
    return agreed


def _of(name: str, group: AnnotatedGroup) -> Floats:
    if name not in group.annotators:
        return np.zeros(0)
    scores: Floats = group.scores_AG[group.annotators.index(name)]
    return scores
