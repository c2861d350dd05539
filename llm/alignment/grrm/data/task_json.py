"""A translation task as the compact JSON that stands in `tgt`."""

from __future__ import annotations

import json
import re
from typing import Any

from grrm.gqm.groups import TranslationTask
from grrm.gqm.spans import Marked, read_marked, span_fields
from grrm.gqm.terms import read_terms, terms_mapping

_TRAILING_CONTROL_TOKENS = re.compile(r"(?:\s|<\|[^|<>]*\|>)*")
_KEYS = ("source", "src_lang", "trg_lang", "reference")


def render_tgt(task: TranslationTask) -> str:
    """The task as compact JSON: source, src_lang, trg_lang, reference, and terms and marked if it has any."""
    fields: dict[str, Any] = {name: getattr(task, name) for name in _KEYS}
    if task.terms:
        fields["terms"] = terms_mapping(task.terms)
    if task.marked:
        fields["marked"] = [{"text": text, "spans": span_fields(spans)} for text, spans in task.marked]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def parse_tgt(tgt: str) -> TranslationTask | None:
    """The task in a `tgt` made by `render_tgt`, None when it is anything else.

    Control tokens after the JSON are ignored: PaddleNLP decodes labels with special tokens kept. Unknown keys are
    ignored; a missing or null reference gives a task without one.
    """
    text = tgt.lstrip()
    fields: Any
    try:
        fields, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not _TRAILING_CONTROL_TOKENS.fullmatch(text, end):
        return None
    values: list[Any] = [fields.get(name) for name in _KEYS]
    source, src_lang, trg_lang, reference = values
    is_task = all(isinstance(value, str) and value for value in (source, src_lang, trg_lang))
    terms = read_terms(fields.get("terms"))
    marked = _marked(fields.get("marked", []))
    if not is_task or not isinstance(reference, str | None) or isinstance(terms, str) or isinstance(marked, str):
        return None
    return TranslationTask(source, src_lang, trg_lang, reference, terms=terms, marked=marked)


def _marked(entries: Any) -> Marked | str:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return "marked is not a list of translations"
    return read_marked([entry.get("text") for entry in entries], [entry.get("spans") for entry in entries])
