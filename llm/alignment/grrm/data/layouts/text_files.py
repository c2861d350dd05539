"""JSON, JSON lines, and pairs of text files with a sentence a line; maybe compressed."""

from __future__ import annotations

import html
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.data.layouts.table import MAX_TEXT, Row, RowError, RowTable, ending_of
from grrm.errors import UserError, first_line
from grrm.small_files import read_small_file

STDIN = Path("-")
_MAX_JSON = 1 << 30
_SEGMENT = re.compile("[^>]*>(.*?)</seg>")  # behind "<seg"
_HALF = re.compile("[\ud800-\udfff]")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and lines; only a line feed ends a line, as other separators occur within sentences.

    Raises UserError for a file that cannot be read, is not UTF-8, or has a line of more than `MAX_TEXT` bytes.
    """
    try:
        with open_binary(path) as file:
            number = 0
            while raw := file.readline(MAX_TEXT + 1):
                number += 1
                if len(raw) > MAX_TEXT:
                    raise UserError(f"{path} line {number} is longer than {MAX_TEXT} bytes; give text with line feeds")
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text in line {number}; convert it") from error


def _sentences(path: Path) -> Iterator[tuple[int, str]]:
    """As `lines_of`; of WMT's `.sgm` files the segments."""
    if ending_of(path) != ".sgm":
        yield from lines_of(path)
        return
    for number, line in lines_of(path):
        for part in line.split("<seg")[1:]:
            segment = _SEGMENT.match(part)
            if segment is None:
                raise UserError(
                    f"{path} line {number} has a segment that does not end; write each in a line of its own"
                )
            yield number, html.unescape(segment[1]).strip()


def json_lines_table(path: Path) -> RowTable:
    """An object a line; a line that is none is the error of its row, and a blank one is no row."""

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        return (json_object(path, number, line) for number, line in lines_of(path) if line.strip())

    return RowTable(str(path), _names(rows(None)), rows)


def json_object(path: Path, number: int, line: str) -> Row | RowError:
    """The object in a line of a file, or why it is none that can be used."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return RowError(f"{path} line {number} is not JSON; write one object per line", "the line is not JSON")
    return _checked_object(value, f"{path} line {number}", "line", "write one object per line", "\\u" in line)


def _checked_object(value: Any, location: str, noun: str, remedy: str, has_escapes: bool) -> Row | RowError:
    """`value`, unless it is no object or, where JSON escapes characters, has half of one."""
    if not isinstance(value, dict):
        return RowError(f"{location} is not a JSON object; {remedy}", f"the {noun} is not a JSON object")
    try:
        half = _HALF.search(json.dumps(value, ensure_ascii=False)) if has_escapes else None
    except RecursionError:  # which reading allows some levels more
        return RowError(f"{location} has values within values too deep to read; {remedy}", f"the {noun} is too deep")
    if half:
        message = f"{location} has {half[0]!r}, half of a character; mend or remove the {noun}"
        return RowError(message, f"the {noun} has half of a character")
    return value


def json_table(path: Path) -> RowTable:
    """A list of objects, alone or as the only one in an object; a single object; or lines of them under this ending."""
    with open_binary(path) as file:
        content = file.read(_MAX_JSON + 1)
    if len(content) > _MAX_JSON:
        raise UserError(f"{path} is larger than {_MAX_JSON} bytes; write JSON lines, an object a line")
    try:
        text = content.decode(json.detect_encoding(content))
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error) and text.lstrip()[:1] == "{":
            return json_lines_table(path)
        raise UserError(f"{path} is not JSON ({error}); write a list of objects, or an object a line") from error
    if not isinstance(value, dict | list):
        raise UserError(f"{path} is not a list of objects; write one, or an object a line")
    lists = [item for item in value.values() if _has_objects(item)] if isinstance(value, dict) else [value]
    objects, has_escapes = lists[0] if len(lists) == 1 else [value], "\\u" in text  # else a single row

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for number, item in enumerate(objects, start=1):
            yield _checked_object(item, f"{path} row {number}", "row", "write a list of objects", has_escapes)

    return RowTable(str(path), _names(rows(None)), rows, len(objects))


def _has_objects(value: Any) -> bool:
    """True for a list of rows, and not for one of texts or scores, which is a cell of a single row."""
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def line_pair_table(source: Path, target: Path | None) -> RowTable:
    """The lines of two files, or of one without translations, as src_text and trg_text.

    Raises UserError where the files do not have as many lines.
    """

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        if target is None:
            yield from ({"src_text": line} for _, line in _sentences(source))
            return
        n_source = n_target = 0
        for source_line, target_line in zip_longest(_sentences(source), _sentences(target)):
            n_source, n_target = n_source + (source_line is not None), n_target + (target_line is not None)
            if source_line is not None and target_line is not None:
                yield {"src_text": source_line[1], "trg_text": target_line[1]}
        if n_source != n_target:
            raise UserError(
                f"{source} has {n_source} lines and {target} {n_target}: give files in which line follows line"
            )

    names = ("src_text",) if target is None else ("src_text", "trg_text")
    return RowTable(str(source), names, rows)


def _names(rows: Iterator[Row | RowError]) -> tuple[str, ...]:
    """The keys of all rows: one that few have, far behind, is a column too."""
    return tuple(dict.fromkeys(name for row in rows if not isinstance(row, RowError) for name in row))


@contextmanager
def open_binary(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed; those of standard input and of a pipe are read at once.

    Raises UserError where they cannot be read, also in the block.
    """
    try:
        if path == STDIN:
            yield io.BytesIO(sys.stdin.buffer.read())
        elif path.is_fifo():  # in which Arrow cannot seek
            yield io.BytesIO(read_small_file(path, f"input file '{path}'"))
        else:
            with io.BufferedReader(pa.input_stream(str(path), compression="detect")) as file:
                yield file
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"{path} cannot be read ({why}); give the path of a file") from error
