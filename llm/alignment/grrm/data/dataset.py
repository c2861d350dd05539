"""The data sets the trainers read: JSON lines with PaddleNLP's `src` and `tgt` keys, tokenised."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grrm.data.chats import MESSAGES, RenderMessages, chat_texts
from grrm.data.documents import LocatedRow, contexts_of
from grrm.data.layouts.table import RowError
from grrm.data.layouts.text_files import json_object, lines_of
from grrm.data.row_tasks import TaskOf, translation_of
from grrm.data.task_json import parse_tgt
from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask

logger = logging.getLogger(__name__)

Encode = Callable[[str], list[int]]
Spans = Callable[[str], list[tuple[int, int]]]  # text to [start, end) characters of each of its tokens
IGNORED_LABEL = -100
DECISIVE = "decisive"


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt to roll out; `index` is its position in the data set, `label` the text that stands in `tgt`.

    `is_chat` where the row has messages, which the tokenizer's own template made a prompt of.
    """

    index: int
    prompt_ids: list[int]
    prompt_text: str
    task: TranslationTask
    label: str = ""
    is_chat: bool = False


@dataclass(frozen=True, slots=True)
class SftItem:
    """One supervised example, unpadded. `input_ids` = prompt + response + eos; `labels` has the same length and
    IGNORED_LABEL over the first `prompt_len` tokens, which are not learned; it is not shifted. `decisive` are the
    positions, counted from the first learned token, of those that carry a judgement; None where the row does not say.
    `is_chat` as in `PromptItem`.
    """

    index: int
    input_ids: list[int]
    labels: list[int]
    prompt_len: int
    prompt_text: str
    decisive: tuple[int, ...] | None = None
    is_chat: bool = False


def read_prompt_items(
    path: Path,
    encode: Encode,
    max_prompt_len: int,
    prompt_key: str = "src",
    response_key: str = "tgt",
    task_of: TaskOf = translation_of,
    check: Callable[[TranslationTask], object] | None = None,
    render: RenderMessages | None = None,
    context_segments: int = 0,
) -> list[PromptItem]:
    """Prompts and their tasks. Prompts over `max_prompt_len` tokens are left out and counted, never cut.

    `encode` turns a complete, chat-templated prompt into token ids and must add no special tokens. `task_of` makes a
    row's task; `check` is called with every task and raises UserError for one that the reward cannot use.

    A row may have `messages` instead of a prompt, of which `render` makes one; an assistant's message at the end is not
    part of it, but stands for a `tgt` that is missing.

    With `context_segments` tasks have that much context, of the rows before theirs in a document with their references.

    Raises UserError naming file and line for a missing or empty file, a line that is not a JSON object, a missing
    key, a value that is neither text nor a one-element list of text, or a row without a translation task; when no
    prompt is short enough; and with context as `contexts_of` does.
    """
    encode, n_rows = shared_ids(encode), 0
    items: dict[int, PromptItem] = {}  # by line
    located: dict[int, LocatedRow] = {}  # of over-long prompts too
    for number, row in tqdm(read_rows(path), desc=f"tokenise {path.name}", unit="row", disable=None):
        prompt, tgt, is_chat = _texts(path, number, row, (prompt_key, response_key), render)
        n_rows += 1
        try:
            task = task_of(row, prompt, tgt, response_key)
            if check is not None:
                check(task)
        except UserError as error:
            raise UserError(f"{path} line {number}: {error}") from error
        if context_segments:
            located[number] = LocatedRow.of_task(task, row)
        prompt_ids = encode_prompt(path, number, prompt, encode)
        if len(prompt_ids) <= max_prompt_len:
            items[number] = PromptItem(len(items), prompt_ids, prompt, task, tgt, is_chat)
    report_too_long(path, "max_prompt_len", max_prompt_len, n_rows - len(items), n_rows)
    if context_segments:
        numbers = list(located)
        contexts = contexts_of(list(located.values()), context_segments, lambda at: f"{path} line {numbers[at]}")
        for number, context in zip(numbers, contexts, strict=True):
            if item := items.get(number):
                items[number] = replace(item, task=replace(item.task, context=context))
    return list(items.values())


def read_sft_items(
    path: Path,
    encode: Encode,
    eos_id: int,
    max_length: int,
    prompt_key: str = "src",
    response_key: str = "tgt",
    train_on_prompt: bool = False,
    spans_of: Spans | None = None,
    render: RenderMessages | None = None,
) -> list[SftItem]:
    """Prompts and responses for supervised training. Examples over `max_length` tokens are left out and counted.

    With `train_on_prompt` all tokens behind the first are learned, not only those of the response. A row's `decisive`
    are [start, end) characters of the response: each token with one of them is decisive, for which `spans_of` has to
    say where tokens are. The response to `messages` is the assistant's at their end; those before it are the prompt.

    Raises UserError as `read_prompt_items` does, except that `tgt` may be any text but a task for RL, and for a
    `decisive` that is no list of such ranges.
    """
    encode, n_rows = shared_ids(encode), 0
    items: list[SftItem] = []
    for number, row in tqdm(read_rows(path), desc=f"tokenise {path.name}", unit="row", disable=None):
        prompt, response, is_chat = _texts(path, number, row, (prompt_key, response_key), render)
        if parse_tgt(response) is not None:
            raise UserError(
                f"{path} line {number} has a task for RL as its {response_key!r}; give the file that "
                "`grrm data convert --to sft` writes"
            )
        n_rows += 1
        prompt_ids = encode_prompt(path, number, prompt, encode)
        response_ids = [*encode(response), eos_id]
        if len(prompt_ids) + len(response_ids) <= max_length:
            tokens, n_ignored = prompt_ids + response_ids, 1 if train_on_prompt else len(prompt_ids)
            labels = [IGNORED_LABEL] * n_ignored + tokens[n_ignored:]
            decisive = None
            if spans_of is not None and row.get(DECISIVE) is not None:
                inside = _inside(spans_of(response), _ranges(path, number, row[DECISIVE], len(response)))
                decisive = tuple(len(prompt_ids) - n_ignored + at for at in inside)
            items.append(SftItem(len(items), tokens, labels, n_ignored, prompt, decisive, is_chat))
    report_too_long(path, "max_length", max_length, n_rows - len(items), n_rows)
    return items


def shared_ids(encode: Encode) -> Encode:
    """`encode` with one int for each id: for every token of its own Python takes four times the bytes of a pointer."""
    ids: dict[int, int] = {}
    return lambda text: [ids.setdefault(token, token) for token in encode(text)]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream `(line number from 1, JSON object)`; blank lines are skipped. Errors as in `read_prompt_items`."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the path of a JSON lines file")
    if path.suffix in (".parquet", ".arrow", ".csv", ".tsv", ".tmx", ".xlf", ".xliff"):
        raise UserError(f"{path} is not of JSON lines, which training reads; make them with `grrm data convert`")
    empty = True
    for number, line in lines_of(path):
        if not line.strip():
            continue
        empty = False
        row = json_object(path, number, line)
        if isinstance(row, RowError):
            raise row
        yield number, row
    if empty:
        raise UserError(f"{path} has no lines; give a file with at least one JSON object")


def encode_prompt(path: Path, number: int, prompt: str, encode: Encode) -> list[int]:
    """The prompt's token ids. Raises UserError naming file and line for one that has none."""
    prompt_ids = encode(prompt)
    if not prompt_ids:  # nothing would be there to predict the first token of the response from
        raise UserError(f"{path} line {number} has an empty prompt; write the prompt or remove the line")
    return prompt_ids


def _texts(
    path: Path, number: int, row: dict[str, Any], keys: tuple[str, str], render: RenderMessages | None
) -> tuple[str, str, bool]:
    """Prompt and response of a row, and True where they are of its `messages`."""
    prompt_key, response_key = keys
    if MESSAGES not in row or prompt_key in row:
        return _value(path, number, row, prompt_key), _value(path, number, row, response_key), False
    prompt, answer = chat_texts(path, number, row, render)
    has_response = response_key in row or answer is None
    return prompt, _value(path, number, row, response_key) if has_response else str(answer), True


def _value(path: Path, number: int, row: dict[str, Any], key: str) -> str:
    if key not in row:
        raise UserError(
            f"{path} line {number} has no key {key!r} (found: {', '.join(row) or 'none'}); "
            "set prompt_key and response_key to the keys of your file"
        )
    value = row[key]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise UserError(f"{path} line {number}: {key!r} must be text or a list of one text")
    return value


def _ranges(path: Path, number: int, ranges: Any, length: int) -> list[tuple[int, int]]:
    """A row's `decisive`, checked."""
    are_pairs = isinstance(ranges, list) and all(isinstance(span, list) and len(span) == 2 for span in ranges)
    if not are_pairs or not all(type(at) is int for span in ranges for at in span):
        raise UserError(f"{path} line {number}: {DECISIVE!r} must be a list of [start, end] characters of the response")
    if not all(0 <= start < end <= length for start, end in ranges):
        raise UserError(
            f"{path} line {number}: {DECISIVE!r} has a range outside the {length} characters of the response"
        )
    return [(start, end) for start, end in ranges]


def _inside(spans: Sequence[tuple[int, int]], ranges: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of the tokens that have a character in one of the ranges."""
    return [
        number
        for number, (start, end) in enumerate(spans)
        if any(start < last and first < end for first, last in ranges)
    ]


def report_too_long(path: Path, limit_name: str, limit: int, n_too_long: int, n_total: int) -> None:
    """Logs how many rows were left out. Raises UserError when all were."""
    if n_too_long == n_total:
        raise UserError(f"{path}: all {n_total} rows are longer than {limit_name} = {limit} tokens; raise the limit")
    if n_too_long:
        logger.warning(
            "%s: %d of %d rows are longer than %s = %d tokens and were left out",
            path, n_too_long, n_total, limit_name, limit,
        )  # fmt: skip
