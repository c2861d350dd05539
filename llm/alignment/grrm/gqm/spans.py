"""Error spans: the parts of a translation that are wrong, and how severely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from grrm.errors import UserError, require_known

Severity = Literal["minor", "major", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)
# Of MQM, with 10 for critical errors (Freitag et al. 2021 have 25 for those that are no translation at all).
MQM_WEIGHTS: Mapping[str, float] = {"minor": 1.0, "major": 5.0, "critical": 10.0}


@dataclass(frozen=True, slots=True)
class ErrorSpan:
    """Characters from `start` up to `end` of a translation, with the severity of the error.

    Raises ValueError for an empty range, a negative start or another severity.
    """

    start: int
    end: int
    severity: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"an error span cannot reach from character {self.start} to {self.end}")
        if self.severity not in SEVERITIES:
            raise ValueError(f"{self.severity!r} is no severity of an error; it is one of {', '.join(SEVERITIES)}")


Spans = tuple[ErrorSpan, ...]
Marked = tuple[tuple[str, Spans], ...]  # translations of a task whose errors people have marked
GroupSpans = tuple[Spans | None, ...]  # of each candidate of a group, None where nobody looked for errors


def severity_weights(chosen: Mapping[str, float]) -> dict[str, float]:
    """The weight of every severity, of MQM where none is given. Raises UserError for another name, or below 0."""
    for name, weight in chosen.items():
        require_known("severity", name, SEVERITIES)
        if weight < 0:
            raise UserError(f"the severity {name} has the weight {weight:g}; give a number at least 0")
    return {**MQM_WEIGHTS, **chosen}


def check_spans(spans: Sequence[Spans | None], translations: Sequence[str | None]) -> None:
    """Raise ValueError for spans of a candidate without a translation, or beyond the end of its translation."""
    for number, (own, text) in enumerate(zip(spans, translations, strict=True)):
        end = max((span.end for span in own or ()), default=0)
        if end > len(text or ""):
            raise ValueError(f"candidate {number} has an error span up to character {end} of {len(text or '')}")


def read_marked(texts: Any, spans: Any) -> Marked | str:
    """Annotated translations from the columns `mt_texts` and `spans` of a row, or what is wrong with them.

    Without spans there are none. An error without a severity is minor, the least that it can be; an omission, which is
    empty and at the end, has no characters to mark.
    """
    if spans is None:
        return ()
    if not isinstance(texts, list) or not isinstance(spans, list) or len(texts) != len(spans):
        return "spans has not one list for each of mt_texts"
    try:
        marked = tuple((text, _spans_in(text, own)) for text, own in zip(texts, spans, strict=True))
    except (KeyError, TypeError, AttributeError):
        return "spans has an entry that is not start, end and severity"
    except ValueError as error:
        return f"spans: {error}"
    return marked


def _spans_in(text: Any, fields: Sequence[Mapping[str, Any]]) -> Spans:
    """The errors of one translation, in their order. Raises ValueError for one outside the text."""
    if not isinstance(text, str):
        raise TypeError
    own = [(error["start"], error["end"], error["severity"] or "minor") for error in fields]
    if not all(type(at) is int for start, end, _ in own for at in (start, end)):
        raise TypeError
    spans = spans_sorted(ErrorSpan(*error) for error in own if not error[0] == error[1] == len(text))
    check_spans([spans], [text])
    return spans


def spans_sorted(spans: Iterable[ErrorSpan]) -> Spans:
    """The different ones of `spans` in the order of their places."""
    return tuple(sorted({*spans}, key=lambda span: (span.start, span.end, span.severity)))


def joined_spans(several: Sequence[GroupSpans], n_candidates: int) -> GroupSpans:
    """The spans of all judges of a group; `several` has () for a judge that marks none. () if none does."""
    marked = [spans for spans in several if spans]
    if not marked:
        return ()
    columns = ([spans[i] for spans in marked] for i in range(n_candidates))
    return tuple(
        None if all(own is None for own in column) else tuple(span for own in column for span in own or ())
        for column in columns
    )


def span_fields(spans: Spans | None) -> list[dict[str, Any]] | None:
    """A candidate's spans as messages and dumps have them."""
    return None if spans is None else [asdict(span) for span in spans]


def spans_of_fields(fields: Sequence[Mapping[str, Any]] | None) -> Spans | None:
    """The reverse of `span_fields`. Raises ValueError for what is no span."""
    return None if fields is None else tuple(ErrorSpan(**error) for error in fields)


def spans_in_order(
    fields: Sequence[Sequence[dict[str, Any]] | None], positions: Sequence[int], translations: Sequence[str | None]
) -> GroupSpans:
    """The spans of the candidates at `positions` of a message, which have these translations; () for none at all.

    Raises ValueError for spans that do not fit the candidates.
    """
    if not fields:
        return ()
    if len(fields) != len(positions):
        raise ValueError(f"error spans of {len(fields)} candidates for {len(positions)}")
    spans = tuple(spans_of_fields(fields[i]) for i in positions)
    check_spans(spans, translations)
    return spans
