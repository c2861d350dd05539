"""Translation memories: TMX, and XLIFF 1.2 and 2.

Read with the standard library's expat, as units that are dropped once they are read. Entities that a document declares,
which can grow without bounds or name other files, are refused; a document type without any, as TMX files have, is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from grrm.data.layouts.table import MAX_TEXT, Row, RowError, RowTable
from grrm.errors import UserError

COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang")
_MAX_DEPTH = 64
_CHUNK = 1 << 20
_NOT_TEXT = frozenset(("bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp"))  # mark-up as content
_HEADS = frozenset(("header", "file", "xliff"))  # whose attributes name languages
_UNITS = frozenset(("tu", "trans-unit", "segment"))


def tmx_table(path: Path, src_lang: str | None, trg_lang: str | None) -> RowTable:
    """A row for each translation of a unit: from `src_lang`, or the header's language, into `trg_lang` or any other."""

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for unit, heads in _units(path):
            source_language = src_lang or unit.get("srclang") or heads.get("srclang", "*all*")
            if source_language == "*all*":
                raise UserError(f"{path} does not say its source language; give it with --src-lang")
            texts = {_language(variant): _text(variant.find("seg")) for variant in unit.findall("tuv")}
            source = next((lang for lang in texts if _same(lang, source_language)), None)
            others = [lang for lang in texts if lang != source and (trg_lang is None or _same(lang, trg_lang))]
            if source is None or not others:
                lacking = source_language if source is None else trg_lang or "another language"
                message = f"{path} unit {unit.get('tuid', '')!r} has no text in {lacking}; add it or remove the unit"
                yield RowError(message, f"the unit has no text in {lacking}")
            for lang in others if source is not None else ():
                yield dict(zip(COLUMNS, (texts[str(source)], texts[lang], source, lang), strict=True))

    return RowTable(str(path), COLUMNS, rows)


def xliff_table(path: Path) -> RowTable:
    """A row for each unit (of XLIFF 2, each segment); one that is not translated yet has None as its translation."""

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for unit, heads in _units(path):
            src_lang = heads.get("source-language") or heads.get("srcLang")
            trg_lang = heads.get("target-language") or heads.get("trgLang")
            texts = [_text(unit.find(name)) for name in ("source", "target")]
            yield dict(zip(COLUMNS, (*texts, src_lang, trg_lang), strict=True))

    return RowTable(str(path), COLUMNS, rows)


def _units(path: Path) -> Iterator[tuple[Element, dict[str, str]]]:
    """Each unit, and the attributes of what it stands in."""
    reader = _UnitReader(path)
    try:
        with path.open("rb") as file:
            yield from reader.units(file)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give the path of a file") from error
    except expat.ExpatError as error:
        raise UserError(f"{path} is not well-formed XML ({error}); export it again") from error


class _UnitReader:
    """Builds the elements of units from what expat reports, and no others."""

    def __init__(self, path: Path) -> None:
        self.path, self.heads, self.done, self.depth = path, dict[str, str](), list[tuple[Element, dict[str, str]]](), 0
        self.builder: TreeBuilder | None = None
        self.unit_depth = self.n_characters = 0
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.EntityDeclHandler = self._entity

    def units(self, file: BinaryIO) -> Iterator[tuple[Element, dict[str, str]]]:
        while chunk := file.read(_CHUNK):
            self.parser.Parse(chunk)
            yield from self.done
            self.done.clear()
        self.parser.Parse(b"", True)
        yield from self.done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UserError(f"{self.path} has elements {_MAX_DEPTH} deep; it is no translation memory")
        name = name.rpartition("}")[2]
        attributes = {key.rpartition("}")[2]: value for key, value in attributes.items()}
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
                self.done.append((self.builder.close(), self.heads))
                self.builder = None
        self.depth -= 1

    def _data(self, text: str) -> None:
        if self.builder is not None:
            self.n_characters += len(text)
            if self.n_characters > MAX_TEXT:
                raise UserError(f"{self.path} has a unit of more than {MAX_TEXT} characters; split its texts")
            self.builder.data(text)

    def _entity(self, name: str, *_: object) -> None:
        raise UserError(f"{self.path} declares the entity {name!r}, which is refused; write its text in place of it")


def _text(element: Element | None) -> str | None:
    """The text without inline codes, or None where there is no element."""
    if element is None:
        return None
    parts = [element.text or ""]
    for child in element:
        parts += ["" if child.tag in _NOT_TEXT else _text(child) or "", child.tail or ""]
    return "".join(parts)


def _language(element: Element) -> str:
    return element.get("lang", "")


def _same(lang: str, other: str) -> bool:
    """True for tags of a language of which one may say more, as `en-US` does of `en`."""
    first, second = (tag.lower().replace("_", "-").split("-") for tag in (lang, other))
    return first[: len(second)] == second[: len(first)]
