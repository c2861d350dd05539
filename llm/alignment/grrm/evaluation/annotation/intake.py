"""Annotations as people hand them in: downloads of the page and logs of Pearmut, read as one kind of record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import sound_rows
from grrm.errors import UserError, UserErrors, pointer
from grrm.evaluation.annotation.campaign import PAGE_FORMAT
from grrm.evaluation.human_gold.campaigns import is_pearmut, last_entries

Score = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
SHOWN = 20  # mistakes of a file that are spelled out


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Span(_Record):
    """An error: characters from `start` up to `end` of a candidate; an omission is empty and at its end."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]
    severity: Literal["minor", "major"] | None


class Annotation(_Record):
    """The judgement of an annotator on a group: for each candidate a score from 0 to 100 or None, and its errors."""

    group_id: str
    src_text: Text
    trg_text: str | None = None
    src_lang: Text
    trg_lang: Text
    document: str | None = None
    position: float | None = None
    mt_texts: Annotated[list[Text], Field(min_length=2)]
    scores: list[Score | None]
    spans: list[list[Span]]
    annotator: Text

    @model_validator(mode="after")
    def _fits(self) -> Annotation:
        if not len(self.mt_texts) == len(self.scores) == len(self.spans):
            raise ValueError(f"{len(self.mt_texts)} texts, {len(self.scores)} scores and {len(self.spans)} span lists")
        for at, (text, spans) in enumerate(zip(self.mt_texts, self.spans, strict=True)):
            for span in spans:
                is_omission = span.start == span.end == len(text)
                if not is_omission and not span.start < span.end <= len(text):
                    raise ValueError(f"a span {span.start} to {span.end} of candidate {at + 1}, of {len(text)} letters")
        return self


def read_annotations(path: Path, languages: tuple[str | None, str | None] = (None, None)) -> list[Annotation]:
    """The annotations of a file, those without any score or span left out; `languages` where a log does not say them.

    Raises UserError for a file of another kind, UserErrors for all that is wrong with what it says.
    """
    annotations, mistakes = [], []
    for where, record in _records(path, languages):
        try:
            annotation = Annotation.model_validate(record)
        except ValidationError as error:
            mistakes += [
                f"{where}{'.' * bool(detail['loc'])}{pointer(detail['loc'])}: {detail['msg']}"
                for detail in error.errors(include_url=False, include_input=False)
            ]
            continue
        if any(score is not None for score in annotation.scores) or any(annotation.spans):
            annotations.append(annotation)
    if mistakes:
        more = [f"and {len(mistakes) - SHOWN} more"] if len(mistakes) > SHOWN else []
        raise UserErrors(f"{path} cannot be used", [*mistakes[:SHOWN], *more])
    if not annotations:
        raise UserError(f"{path} has no group with a score or an error; give a file that was annotated")
    return annotations


def _records(path: Path, languages: tuple[str | None, str | None]) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".json":
        yield from _of_page(path)
        return
    table = open_table(path)
    if not is_pearmut(table.names):
        raise UserError(f"{path} is no log of a Pearmut campaign; give that, or the .json file that the page saved")
    for (user, number), entry in last_entries(sound_rows(table)).items():
        where = f"item {number} of {user}"
        items, annotated = entry.get("item"), entry.get("annotation")
        if not isinstance(items, list) or not isinstance(annotated, list) or len(items) != len(annotated):
            yield where, None
            continue
        for at, (item, said) in enumerate(zip(items, annotated, strict=True)):
            if said is not None:  # skipped
                yield f"{where}, segment {at + 1}", _of_pearmut(item, said, user, languages, f"{number}/{at}")


def _of_page(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UserError(f"{path} cannot be read as JSON ({why}); give what the page saved") from error
    if not isinstance(content, dict) or content.get("format") != PAGE_FORMAT:
        raise UserError(f"{path} has no format {PAGE_FORMAT!r}; give the file that the page saved")
    annotator, groups = content.get("annotator"), content.get("groups")
    if not isinstance(groups, list):
        raise UserError(f"{path} has no list of groups; give the file that the page saved")
    for at, group in enumerate(groups):
        yield f"groups[{at}]", {**group, "annotator": annotator} if isinstance(group, dict) else group


def _of_pearmut(item: Any, said: Any, user: Any, languages: tuple[str | None, str | None], position: str) -> Any:
    """A segment of the log; None for what is no such thing. Its spans count UTF-16 units, the last one included.

    One without an identifier is called by its position in the campaign, as a source may occur more than once.
    """
    try:
        texts: dict[str, str] = item["tgt"]
        judged = [said[name] for name in texts]
        spans = [
            [_span(text, span) for span in own.get("error_spans") or ()]
            for text, own in zip(texts.values(), judged, strict=True)
        ]
        own_languages = (item.get(name) or default for name, default in zip(_LANGUAGES, languages, strict=True))
        return {
            **item,
            **dict(zip(_LANGUAGES, own_languages, strict=True)),
            "group_id": position if item.get("item_id") is None else str(item["item_id"]),
            "src_text": item.get("src"),
            "mt_texts": list(texts.values()),
            "scores": [own.get("score") for own in judged],
            "spans": spans,
            "annotator": user,
        }
    except (KeyError, TypeError, AttributeError):
        return None


_LANGUAGES = ("src_lang", "trg_lang")


def _span(text: str, span: Mapping[str, Any]) -> dict[str, Any]:
    """A span in characters. Behind the text stand Pearmut's tokens for what is missing."""
    ends = [0, *accumulate(1 + (ord(character) > 0xFFFF) for character in text)]  # of all characters, in UTF-16 units
    start, last = span["start_i"], span["end_i"]
    if start >= ends[-1]:
        return {"start": len(text), "end": len(text), "severity": span.get("severity")}
    first = sum(end <= start for end in ends[1:])
    return {"start": first, "end": sum(end <= last for end in ends[:-1]), "severity": span.get("severity")}
