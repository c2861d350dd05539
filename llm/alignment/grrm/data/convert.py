"""From sentence pairs, in the columns of TowerBlocks-MT, to the `src`/`tgt` JSON lines PaddleNLP trains on.

For RL, `src` is the complete chat-templated prompt and `tgt` is the task as compact JSON, so that a reward server
which is sent nothing but `src`, `tgt` and `response` knows source, languages and reference. For SFT, `tgt` is the
response the policy should give.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grrm.data.atomic import atomic_path
from grrm.data.chats import MESSAGES
from grrm.data.documents import CARRIED, LOCATION, carried, carried_columns, location_fields, with_location
from grrm.data.layouts.table import MAX_TEXT, RowError, counted
from grrm.data.layouts.user_rows import COLUMNS, UserRows, opened
from grrm.data.parquet import SCHEMA, check_parquet, count_rows, iter_rows, write_rows
from grrm.data.task_json import render_tgt
from grrm.errors import UserError, require_known
from grrm.gqm.chat import CONTROL_TOKENS, render_chatml
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import display_name
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt
from grrm.gqm.spans import read_marked
from grrm.gqm.terms import has_term, read_terms

logger = logging.getLogger(__name__)

_FENCE = "```"
_MARKED = ("mt_texts", "spans")  # optional columns: translations with marked errors


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was left out: its number in the file (from 1) and why."""

    row: int
    reason: str

    @property
    def kind(self) -> str:
        """The reason without the value that it quotes: rows of one kind are told together."""
        return re.split(" ['\"]", self.reason)[0]


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The number of rows that a conversion wrote to `path`, and the rows that it left out."""

    path: Path
    written: int
    rejected: tuple[RejectedRow, ...]

    def summary(self) -> str:
        """One line: rows written, rows left out by reason."""
        reasons = counted(Counter(row.kind for row in self.rejected))
        why = f" ({reasons})" if reasons else ""
        return f"{self.path}: {self.written} rows written, {len(self.rejected)} left out{why}"


def log_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    """Log the rows that are left out, those of one kind in one line with the first one's reason."""
    by_kind: dict[str, list[RejectedRow]] = {}
    for row in rejected:
        by_kind.setdefault(row.kind, []).append(row)
    for rows in by_kind.values():
        more = f" (and {len(rows) - 1} more: {_numbers(rows[1:])})" if len(rows) > 1 else ""
        logger.warning("%s row %d left out: %s%s", path, rows[0].row, rows[0].reason, more)


def _numbers(rows: Sequence[RejectedRow]) -> str:
    return ", ".join(str(row.row) for row in rows[:10]) + (", …" if len(rows) > 10 else "")


def convert_to_src_tgt(
    rows: Path | UserRows,
    out_jsonl: Path,
    prompt_type: str = "codeblock-think",
    without: Collection[int] = (),
    as_messages: bool = False,
) -> ConversionReport:
    """Write `{"src": prompt, "tgt": task as JSON}` lines for RL; rows that cannot be used are left out and reported.

    A row without trg_text, or a file without that column, gives tasks without a reference, which only metrics need.
    Lines have the place of their row in a document, if any. Rows whose number is in `without` are left out silently.

    A column `terms` gives tasks glossary terms (`gqm.terms.read_terms`), each of which the source has; `mt_texts` and
    `spans`, as `grrm annotate` imports them, give it translations with marked errors.

    With `as_messages` lines have `messages` in place of `src`; the trainer's tokenizer applies its template to them.

    Raises UserError for an unknown prompt type, an unreadable or empty file, or one without a usable row.
    """

    def line(task: TranslationTask) -> dict[str, Any]:
        return _prompt_fields(task, prompt_type, as_messages) | {"tgt": render_tgt(task)}

    return _convert(rows, out_jsonl, prompt_type, line, ("trg_text", *CARRIED, *_MARKED), without)


def convert_to_sft(
    rows: Path | UserRows,
    out_jsonl: Path,
    prompt_type: str = "codeblock-think",
    without: Collection[int] = (),
    as_messages: bool = False,
) -> ConversionReport:
    """Write `{"src": prompt, "tgt": response}` lines for the cold start; otherwise like `convert_to_src_tgt`.

    With `as_messages` the response is the last message.
    """

    def line(task: TranslationTask) -> dict[str, Any]:
        response = render_response(task.reference or "", prompt_type)
        fields = _prompt_fields(task, prompt_type, as_messages)
        if not as_messages:
            return fields | {"tgt": response}
        return {MESSAGES: [*fields[MESSAGES], {"role": "assistant", "content": response}]}

    return _convert(rows, out_jsonl, prompt_type, line, (), without)


def convert_to_rows(
    rows: Path | UserRows, out: Path, prompt_type: str = "codeblock-think", without: Collection[int] = ()
) -> ConversionReport:
    """Write the rows that `convert_to_src_tgt` would use as parquet, with `COLUMNS`, places and terms, else like it."""
    check_parquet(out, "rows")
    rejected: list[RejectedRow] = []
    columns = carried_columns(rows)

    def usable() -> Iterator[tuple[Any, ...]]:
        n_used = 0
        for number, values in iter_rows(rows, (*COLUMNS, *CARRIED), optional=("trg_text", *CARRIED)):
            if isinstance(values, RowError):
                rejected.append(RejectedRow(number, values.reason))
            elif fault := fault_of_pair(values, prompt_type, ("trg_text",)):
                rejected.append(RejectedRow(number, fault))
            elif number not in without:
                n_used += 1
                yield carried(values, columns)
        _check_usable(opened(rows).path, n_used, rejected)

    written = write_rows(out, usable(), with_location(SCHEMA, columns))
    return ConversionReport(out, written, tuple(rejected))


def fault_of_pair(values: tuple[Any, ...], prompt_type: str, optional: tuple[str, ...] = ()) -> str | None:
    """Return the reason to leave a row, values of `COLUMNS` and maybe `CARRIED`, out of training; None without any."""
    require_known("prompt type", prompt_type, MT_PROMPT_TYPES)
    line = _line(values, prompt_type, lambda task: {"src": render_prompt(task, prompt_type)}, optional)
    return line if isinstance(line, str) else None


def render_prompt(task: TranslationTask, prompt_type: str) -> str:
    """The complete text a policy continues: chat-templated, except `SSR`, which is its own template."""
    prompt = mt_prompt(task.source, task.src_lang, task.trg_lang, prompt_type)
    return prompt if prompt_type == "SSR" else render_chatml(prompt)


def _prompt_fields(task: TranslationTask, prompt_type: str, as_messages: bool) -> dict[str, Any]:
    """The prompt of a line: complete, or as messages."""
    if not as_messages:
        return {"src": render_prompt(task, prompt_type)}
    prompt = mt_prompt(task.source, task.src_lang, task.trg_lang, prompt_type)
    return {MESSAGES: [{"role": "user", "content": prompt}]}


def render_response(translation: str, prompt_type: str) -> str:
    """The shortest response whose extracted translation is `translation` (without the end token)."""
    if prompt_type == "codeblock-think":
        return f"{_FENCE}\n{translation}\n{_FENCE}"
    return f"<answer>{translation}</answer>" if prompt_type == "SSR" else translation


def write_lines(
    rows: Path | UserRows,
    out_jsonl: Path,
    columns: Sequence[str],
    line_of: Callable[[tuple[Any, ...]], dict[str, Any] | str],
    optional: tuple[str, ...] = (),
    without: Collection[int] = (),
) -> ConversionReport:
    """Write what `line_of` makes of each row's `columns`, a line or the reason why there is none.

    Raises UserError for a file that is unreadable or empty, or has no usable row, and for an `out_jsonl` of another
    ending.
    """
    if out_jsonl.suffix != ".jsonl":
        raise UserError(f"{out_jsonl} does not end with .jsonl; lines are written as JSON")
    path = opened(rows).path
    rejected: list[RejectedRow] = []
    written = 0
    total = count_rows(rows, columns, optional)  # before there is a folder for the output
    with atomic_path(out_jsonl) as temporary, temporary.open("wb") as out:
        numbered = tqdm(iter_rows(rows, columns, optional), f"convert {path.name}", total, unit="row", disable=None)
        for number, values in numbered:
            if number in without:
                continue
            line = values.reason if isinstance(values, RowError) else line_of(values)
            if isinstance(line, dict):
                if encoded := encoded_line(line):
                    out.write(encoded)
                    written += 1
                    continue
                line = f"its line is longer than {MAX_TEXT} bytes"
            rejected.append(RejectedRow(number, line))
        _check_usable(path, written, rejected)
    return ConversionReport(out_jsonl, written, tuple(rejected))


def encoded_line(row: dict[str, Any]) -> bytes | None:
    """The row as a line of JSON; None for one that is so long that training would refuse the whole file."""
    line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
    return line if len(line) <= MAX_TEXT else None


def _check_usable(path: Path, n_used: int, rejected: Sequence[RejectedRow]) -> None:
    log_rejected(path, rejected)
    if n_used == 0:
        why = f"the first is left out because of: {rejected[0].reason}" if rejected else "all are held out"
        raise UserError(f"{path} has no usable row, {why}; mend the file")


def _convert(
    rows: Path | UserRows,
    out_jsonl: Path,
    prompt_type: str,
    make_line: Callable[[TranslationTask], dict[str, Any]],
    optional: tuple[str, ...],
    without: Collection[int],
) -> ConversionReport:
    require_known("prompt type", prompt_type, MT_PROMPT_TYPES)
    line_of = partial(_line, prompt_type=prompt_type, make_line=make_line, optional=optional)
    columns = COLUMNS + tuple(name for name in optional if name not in COLUMNS)
    return write_lines(rows, out_jsonl, columns, line_of, optional, without)


def _line(
    values: tuple[Any, ...],
    prompt_type: str,
    make_line: Callable[[TranslationTask], dict[str, Any]],
    optional: tuple[str, ...],
) -> dict[str, Any] | str:
    """The line of one row, or the reason why there is none."""
    texts: tuple[Any, ...] = tuple(
        None if name in optional and isinstance(value, str) and not value.strip() else value
        for name, value in zip(COLUMNS, values, strict=False)
    )
    if (reason := _fault(texts, prompt_type, optional)) is not None:
        return reason
    source, reference, src_lang, trg_lang = texts
    row = dict(zip((*COLUMNS, *CARRIED, *_MARKED), values, strict=False))
    terms, marked = read_terms(row.get("terms")), read_marked(row.get("mt_texts"), row.get("spans"))
    if isinstance(terms, str) or isinstance(marked, str):
        return terms if isinstance(terms, str) else str(marked)
    if absent := next((term for term, _ in terms if not has_term(source, term)), None):
        return f"terms has a term that is not in src_text {absent[:80]!r}"
    task = TranslationTask(source, src_lang, trg_lang, reference, terms=terms, marked=marked)
    try:
        if display_name(src_lang) == display_name(trg_lang):
            return f"src_lang and trg_lang are one language {src_lang!r}"
        return make_line(task) | location_fields(*map(row.get, LOCATION))
    except UserError as error:  # a language the prompt cannot name, a document without positions
        return str(error)


def _fault(values: tuple[Any, ...], prompt_type: str, optional: tuple[str, ...]) -> str | None:
    for name, value in zip(COLUMNS, values, strict=True):
        if value is None and name in optional:
            continue
        if not isinstance(value, str):
            return f"{name} is not text"
        if not value.strip():
            return f"{name} is empty"
        if any(token in value for token in CONTROL_TOKENS):
            return f"{name} contains a control token of the chat template"
    if values[1] is None:
        return None
    if prompt_type == "codeblock-think" and _FENCE in values[1]:
        return "trg_text contains a code fence"
    # Several lines under Tower.lastl, a closing tag under SSR: the extractor would take another text out again.
    if extract_translation(render_response(values[1], prompt_type), prompt_type) != values[1].strip():
        return f"trg_text cannot be taken out of a {prompt_type} response whole"
    return None
