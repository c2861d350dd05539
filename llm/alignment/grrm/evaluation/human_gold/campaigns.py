"""Rows with a translation and a score each from files of the platforms of annotation Pearmut and Appraise."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

from grrm.data.layouts.table import Row
from grrm.data.layouts.text_files import lines_of
from grrm.errors import UserError

_RESET = "__RESET__"  # of Pearmut: the annotator starts this item over
_NO_DATA = ("welcome_", "random_", "goodbye_")  # items of Pearmut that are tutorials and checks
_COLUMNS = ("annotator", "system", "item", "kind", "src_lang", "trg_lang", "gold", "document", "is_document")
_WITHOUT_DOCUMENT = 11  # columns at most of Appraise's export of single segments: times and numbers follow the score
_SCORED = ("TGT", "CHK")  # items of Appraise that are translations; BAD and REF are checks


def is_pearmut(columns: Sequence[str]) -> bool:
    """Return whether a file with these columns is the log of a Pearmut campaign."""
    return {"annotation", "item", "user_id"} <= {*columns}


def last_entries(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], Mapping[str, Any]]:
    """The last entry of each annotator for each document of a Pearmut log, without tutorials and what was reset."""
    last: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for entry in entries:
        key = entry.get("user_id"), entry.get("item_i")
        if not all(isinstance(part, str | int | None) for part in key):
            raise UserError(f"a Pearmut log has an entry of user_id {key[0]!r} for item_i {key[1]!r}; give it as it is")
        if not str(key[1]).startswith(_NO_DATA):
            last[key] = entry
    return {key: entry for key, entry in last.items() if entry.get("annotation") != _RESET}


def pearmut_rows(log: Path, entries: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """The rows of a Pearmut log, in which an entry is an annotator's work on a document.

    Its `item` has the segments with their outputs by system, its `annotation` the scores of each. Of `last_entries`
    skipped segments are left out. Raises UserError for an entry of another form.
    """
    for (user, number), entry in last_entries(entries).items():
        try:
            yield from list(_of_entry(user, entry))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{log} has an entry of {user} for item {number}"
            raise UserError(f"{what} without the texts or scores of its systems; give the log as it is") from error


def _of_entry(user: Any, entry: Mapping[str, Any]) -> Iterator[Row]:
    for item, annotated in zip(entry["item"], entry["annotation"], strict=True):
        for system, judgement in (annotated or {}).items():
            yield {
                "src_text": item["src"],
                "trg_text": item["tgt"][system],
                "system": system,
                "gold": judgement.get("score"),
                "annotator": user,
                "segment": item.get("item_id"),
                "src_lang": item.get("src_lang"),
                "trg_lang": item.get("trg_lang"),
            }


def appraise_rows(scores: Path, batches: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """The rows of an Appraise campaign: scores as ExportSystemScoresToCSV prints them, texts from the batches.

    The last score of an annotator for a translation counts. Checks and scores of documents are left out. Raises
    UserError for a score whose text is in no batch, or that the identifiers do not tell apart.
    """
    try:
        texts = _texts_of(batches)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the batches for {scores} lack {error}; give the JSON of this Appraise campaign") from error
    last: dict[tuple[str, ...], Row] = {}
    for number, cells in _cells(scores):
        n_columns = len(_COLUMNS) - 2 if len(cells) <= _WITHOUT_DOCUMENT else len(_COLUMNS)
        row: Row = dict(zip(_COLUMNS[:n_columns], cells, strict=False))
        if row.get("kind") not in _SCORED or row.get("is_document") == "True":
            continue
        key = (row["system"], row["item"], row["kind"], row.get("document", ""))
        if len(texts.get(key, ())) != 1:
            many = "several texts" if key in texts else "no text"
            raise UserError(f"{scores} row {number} has {many} in the batches; give those of this campaign")
        ((source, target),) = texts[key]
        whose = (row["annotator"], row["system"], row["item"], row.get("document", ""), target)  # repeated as a check
        last[whose] = {**row, "src_text": source, "trg_text": target, "segment": row["item"]}
    yield from last.values()


def _cells(scores: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(line for _, line in lines_of(scores))
    try:
        yield from enumerate(reader, start=1)
    except csv.Error as error:
        raise UserError(f"{scores} line {reader.line_num} is not CSV ({error}); give what Appraise printed") from error


def _texts_of(batches: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], set[tuple[str, str]]]:
    """Source and translation by system, item, kind and document, and by these without the document."""
    texts: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for item in chain.from_iterable(batch["items"] for batch in batches):
        documents = {str(item.get("documentID", "")), ""}
        for system, document in product(str(item["targetID"]).split("+"), documents):
            key = (system, str(item["itemID"]), str(item["itemType"]), document)
            texts.setdefault(key, set()).add((item["sourceText"], item["targetText"]))
    return texts
