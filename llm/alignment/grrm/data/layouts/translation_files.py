"""Translation memories (TMX, XLIFF 1.2 and 2) and test sets of many languages (FLORES-200, NTREX-128, WMT24++).

Memories are read with the standard library's expat, as units that are dropped once they are read. Entities that a
document declares, which can grow without bounds or name other files, are refused; a document type without any, as TMX
files have, is not.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from grrm.data.layouts.table import MAX_TEXT, Row, RowError, RowTable
from grrm.data.layouts.text_files import line_pair_table, open_binary
from grrm.errors import UserError, mistake_in
from grrm.gqm.languages import base_code, display_name, language_code

logger = logging.getLogger(__name__)
COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang")
_MAX_DEPTH = 64
_CHUNK = 1 << 20
_NOT_TEXT = frozenset(("bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp"))  # mark-up as content
_LANGUAGES_OF_FILE = ("source-language", "target-language")
_HEADS = frozenset(("header", "file", "xliff"))  # whose attributes name languages
_UNTRANSLATED = frozenset(("new", "needs-translation", "initial"))
_UNITS = frozenset(("tu", "trans-unit", "segment"))


def tmx_table(path: Path, src_lang: str | None, trg_lang: str | None) -> RowTable:
    """A row for each translation of a unit: from `src_lang`, or the header's language, into `trg_lang` or any other.

    Without `trg_lang` a text in another variant of the source's language is no translation; the log has their number.
    """

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        variants = Counter[str]()
        for unit, heads in _units(path):
            source_language = src_lang or unit.get("srclang") or heads.get("srclang", "*all*")
            if source_language == "*all*":
                raise UserError(f"{path} does not say its source language; give it with --src-lang")
            texts = [(variant.get("lang", ""), _text(variant.find("seg"))) for variant in unit.findall("tuv")]
            source, text = next((pair for pair in texts if _same(pair[0], source_language)), (None, None))
            others = [pair for pair in texts if pair[0] != source and (trg_lang is None or _same(pair[0], trg_lang))]
            if source is not None and trg_lang is None:
                alike = [lang for lang, _ in others if base_code(lang) == base_code(source)]
                variants.update(alike)
                others = [pair for pair in others if pair[0] not in alike]
            if source is None or not others:
                lacking = source_language if source is None else trg_lang or "another language"
                message = f"{path} unit {unit.get('tuid', '')!r} has no text in {lacking}; add it or remove the unit"
                yield RowError(message, f"the unit has no text in {lacking}")
            for lang, translation in others if source is not None else ():
                yield dict(zip(COLUMNS, (text, translation, source, lang), strict=True))
        for lang, n_texts in variants.items():
            sentence = "%s: %d texts in %s left out, a variant of the source language; give --trg-lang %s to pair them"
            logger.warning(sentence, path, n_texts, lang, lang)

    return RowTable(str(path), COLUMNS, rows)


def xliff_table(path: Path) -> RowTable:
    """A row for each unit (of XLIFF 2, each segment); one that is not translated yet has None as its translation.

    By its state, too: tools fill such a target with a copy of the source. A unit that is not to be translated, for
    which they do the same, is an error.
    """

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for unit, heads in _units(path):
            src_lang = heads.get("source-language") or heads.get("srcLang")
            trg_lang = heads.get("target-language") or heads.get("trgLang")
            if heads["translate"] == "no":
                reason = "the unit is not to be translated"
                yield RowError(f"{path} unit {unit.get('id', '')!r} has translate='no'; leave it out", reason)
                continue
            source, target = unit.find("source"), unit.find("target")
            state = unit.get("state") if target is None else target.get("state") or unit.get("state")
            translation = None if state in _UNTRANSLATED else _text(target)
            yield dict(zip(COLUMNS, (_text(source), translation, src_lang, trg_lang), strict=True))

    return RowTable(str(path), COLUMNS, rows)


def _units(path: Path) -> Iterator[tuple[Element, dict[str, str]]]:
    """Each unit, and the attributes of what it stands in."""
    reader = _UnitReader(path)
    try:
        with open_binary(path) as file:
            yield from reader.units(file)
    except expat.ExpatError as error:
        raise UserError(f"{path} is not well-formed XML ({error}); export it again") from error


class _UnitReader:
    """Builds the elements of units from what expat reports, and no others."""

    def __init__(self, path: Path) -> None:
        self.path, self.heads, self.done, self.depth = path, dict[str, str](), list[tuple[Element, dict[str, str]]](), 0
        self.builder: TreeBuilder | None = None
        self.unit_depth = self.n_characters = 0
        self.translate = ["yes"]  # of XLIFF: the attribute of each open element, which those within it inherit
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._unknown

    def units(self, file: BinaryIO) -> Iterator[tuple[Element, dict[str, str]]]:
        while chunk := file.read(_CHUNK):
            self._parse(chunk)
            yield from self.done
            self.done.clear()
        self._parse(b"", True)
        yield from self.done

    def _parse(self, *data: Any) -> None:
        try:
            self.parser.Parse(*data)
        except (LookupError, ValueError) as error:
            raise UserError(f"{self.path} is in an encoding that cannot be read ({error}); save it as UTF-8") from error

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UserError(f"{self.path} has elements {_MAX_DEPTH} deep; it is no translation memory")
        name = name.rpartition("}")[2]
        attributes = {key.rpartition("}")[2]: value for key, value in attributes.items()}
        self.translate.append(attributes.get("translate", self.translate[-1]))
        if name == "file":  # which does not inherit the languages of the one before
            self.heads = {key: value for key, value in self.heads.items() if key not in _LANGUAGES_OF_FILE}
        if name in _HEADS:
            self.heads = self.heads | attributes
        if self.builder is None and name in _UNITS:
            self.builder, self.unit_depth, self.n_characters = TreeBuilder(), self.depth, 0
        if self.builder is not None:
            self.builder.start(name, attributes)

    def _end(self, name: str) -> None:
        if self.builder is not None:
            self.builder.end(name.rpartition("}")[2])
            if self.depth == self.unit_depth:
                self.done.append((self.builder.close(), {**self.heads, "translate": self.translate[-1]}))
                self.builder = None
        self.translate.pop()
        self.depth -= 1

    def _data(self, text: str) -> None:
        if self.builder is not None:
            self.n_characters += len(text)
            if self.n_characters > MAX_TEXT:
                raise UserError(f"{self.path} has a unit of more than {MAX_TEXT} characters; split its texts")
            self.builder.data(text)

    def _entity(self, name: str, *_: object) -> None:
        raise UserError(f"{self.path} declares the entity {name!r}, which is refused; write its text in place of it")

    def _unknown(self, name: str, _: bool) -> None:
        at = f"{self.path} line {self.parser.CurrentLineNumber}"
        raise UserError(f"{at} has the entity {name!r}, which it does not declare; write its text in place of it")


def _text(element: Element | None) -> str | None:
    """The text without inline codes, or None where there is no element."""
    if element is None:
        return None
    parts = [element.text or ""]
    for child in element:
        parts += ["" if child.tag in _NOT_TEXT else _text(child) or "", child.tail or ""]
    return "".join(parts)


def _same(lang: str, other: str) -> bool:
    """True for names of a language of which one may say more, as `en-US` does of `en`, `eng` and `English`."""
    plain = (tag if {*tag} & {*"-_"} else language_code(tag) for tag in (lang, other))
    first, second = (tag.lower().replace("_", "-").split("-") for tag in plain)
    return first[: len(second)] == second[: len(first)]


_TAG_OF_FILE = re.compile("[a-z]{2}|[a-z]{2,3}[-_][A-Za-z]{2,4}")
_BEFORE_TXT = re.compile(r".*\.([a-z]{3})\.txt")


def language_of_name(path: Path) -> str | None:
    """The language that a file is named after: `en` of train.en.gz, `eng_Latn` of eng_Latn.dev, `eng` of x.eng.txt."""
    tags = [part for part in path.name.split(".") if _TAG_OF_FILE.fullmatch(part)]
    tags += _BEFORE_TXT.findall(path.name)
    return next((tag for tag in reversed(tags) if mistake_in(display_name, tag) is None), None)


def parallel_table(folder: Path, languages: Sequence[str] = ()) -> RowTable | None:
    """Rows of all ordered pairs of `languages`, by default of all files; None for a folder without two such files.

    A language is a code, or `zh=zho_Hans` for the file of another tag. Of two files of a language the one with the
    shorter name is read. Raises UserError for a language without a file.
    """
    names = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: (-len(path.name), path.name))
    files = {tag: path for path in names if (tag := language_of_name(path))}
    if len(files) < 2:
        return None
    chosen = _chosen(folder, files, languages)

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for src_lang, trg_lang in permutations(chosen, 2):
            for row in line_pair_table(chosen[src_lang], chosen[trg_lang]).read(None):
                yield row if isinstance(row, RowError) else {**row, "src_lang": src_lang, "trg_lang": trg_lang}

    return RowTable(str(folder), COLUMNS, rows)


def _chosen(folder: Path, files: Mapping[str, Path], languages: Sequence[str]) -> dict[str, Path]:
    by_code = {language_code(tag): path for tag, path in files.items()}
    if not languages:
        return dict(sorted(by_code.items()))
    chosen = {}
    for language in languages:
        code, _, tag = language.partition("=")
        path = files.get(tag or code) or by_code.get(language_code(tag or code))
        if path is None:
            raise UserError(f"{folder} has no file of {tag or code} (there are {', '.join(sorted(files))})")
        chosen[code] = path
    return chosen


def with_language_pairs(table: RowTable) -> RowTable:
    """The table, and where it has WMT24++'s columns `lp` (en-de_DE), `source` and `target`, with ours beside them.

    A row that is_bad_source is an error: that data set says so of sources that nobody should translate.
    """
    if not {"lp", "source", "target"} <= {*table.names} or {*COLUMNS} & {*table.names}:
        return table

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for number, row in enumerate(table.read(None), start=1):
            if isinstance(row, RowError) or not isinstance(row.get("lp"), str):
                yield row
            elif str(row.get("is_bad_source")).lower() in ("true", "1"):  # of CSV, where all is text
                yield RowError(f"{table.name} row {number} is_bad_source; leave it out", "is_bad_source")
            else:
                src_lang, _, trg_lang = row["lp"].partition("-")
                values = (row.get("source"), row.get("target"), src_lang, trg_lang)
                yield {**row, **dict(zip(COLUMNS, values, strict=True))}

    return RowTable(table.name, (*table.names, *COLUMNS), rows, table.n_rows)
