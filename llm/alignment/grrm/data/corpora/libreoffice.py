"""The `libreoffice` corpus: the pages of LibreOffice's help, segment by segment, with their human translations."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from html.parser import HTMLParser
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
from tqdm import tqdm

from grrm.data.corpora.pairs import CorpusFiles
from grrm.data.corpora.phrase import Side
from grrm.data.corpora.translations import ALL_ROWS, Limits, Source, letters_of, split_of, write_translations
from grrm.data.downloads import downloaded_debs, sha256_of
from grrm.data.parquet import SCHEMA
from grrm.errors import UserError

_SEGMENT_TAG = re.compile(r"p|h[1-6]")
_NO_END = frozenset(("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"))
_NOT_CONTENT = frozenset(("bm_module", "bm_system", "bm_HID"))  # ids of what each page says about itself


def page_segments(html: str) -> dict[str, str]:
    """Id -> text of the segments, in the order of the page.

    Of words that depend on the operating system, those of the default one stand in the text; a segment that says
    something else for each application, without a default, is left out, and so is one without text.
    """
    parser = _PageParser()
    parser.feed(html)
    parser.close()
    texts = {name: " ".join("".join(parts).split()) for name, parts in parser.segments.items()}
    return {name: text for name, text in texts.items() if text and name not in parser.without_default}


class _PageParser(HTMLParser):
    """Collects the text of elements `<p id>` and `<h1 id>`, whatever elements are nested in them.

    A switch is a `<span class="switchinline">` with a `<span hidden>` for each case; the id of the default's begins
    with "default".
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.segments: dict[str, list[str]] = {}
        self.without_default: set[str] = set()
        self._open: list[str] = []  # names of the open elements
        self._segment: tuple[int, str] | None = None  # depth and id of the open one
        self._hidden_depth = 0  # of the case that is left out
        self._switches: list[tuple[int, bool]] = []  # depth, and whether the default was seen

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _NO_END:
            self.handle_data(" " if tag == "br" else "")
            return
        self._open.append(tag)
        attributes = {name: value or "" for name, value in attrs}
        name, depth = attributes.get("id", ""), len(self._open)
        if self._segment is None:
            is_new = name and name not in self.segments and name not in _NOT_CONTENT
            if is_new and _SEGMENT_TAG.fullmatch(tag):
                self._segment = (depth, name)
                self.segments[name] = []
        elif attributes.get("class") == "switchinline":
            self._switches.append((depth, False))
        elif self._switches and "hidden" in attributes:
            if name.startswith("default"):
                self._switches[-1] = (self._switches[-1][0], True)
            elif not self._hidden_depth:
                self._hidden_depth = depth

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open:
            depth = len(self._open)
            if self._hidden_depth == depth:
                self._hidden_depth = 0
            if self._switches and self._switches[-1][0] == depth and not self._switches.pop()[1] and self._segment:
                self.without_default.add(self._segment[1])
            if self._segment is not None and self._segment[0] == depth:
                self._segment = None
            if self._open.pop() == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._segment is not None and not self._hidden_depth:
            self.segments[self._segment[1]].append(data)


SEGMENT_SCHEMA = SCHEMA.append(pa.field("page", pa.string())).append(pa.field("position", pa.int32()))
_HELP = Path("usr/share/libreoffice/help")  # in Debian's packages
_AR_MAGIC, _AR_HEADER_SIZE = b"!<arch>\n", 60  # of Debian's packages
_LOCALES = {"en": "en-US", "pt": "pt-BR", "zh": "zh-CN"}

Pages = dict[str, dict[str, str]]  # page -> id of the segment -> text


class Segment(NamedTuple):
    """A segment in two languages; `position` counts the segments of the English page, those left out too."""

    src_text: str
    trg_text: str
    src_lang: str
    trg_lang: str
    page: str
    position: int


def build_libreoffice(
    out_dir: Path,
    pairs: Sequence[tuple[str, str]],
    folder: Path | None = None,
    min_words: int = 1,
    max_words: int = 100,
    limits: Limits = ALL_ROWS,
) -> CorpusFiles:
    """Write the segments of `min_words` to `max_words` English words, and where they come from, into `out_dir`.

    Rows are in the order of pages and of segments in them, with the columns `page` and `position`. A page is in one
    file only; segments that were not translated are left out, and of repeated ones all but the first.

    Args:
        out_dir: folder of the parquet files
        pairs: (source, target) of each pair of languages
        folder: of Debian's packages libreoffice-help-*, or the help itself (it has `en-US`); None downloads packages
        min_words: fewest blank-separated words of the English text
        max_words: most of them
        limits: most rows of each file

    Raises:
        UserError: the help cannot be had or read, or nothing is left
    """
    languages = sorted({"en"}.union(*pairs))
    packages = {language: f"libreoffice-help-{_locale(language).lower()}" for language in languages}
    with nullcontext(folder) if folder else downloaded_debs(list(packages.values())) as root:
        debs = sorted(path for path in root.glob("*.deb") if path.name.split("_")[0] in packages.values())
        pages = _pages_of_debs(debs, languages) if debs else _pages_of_folder(root, languages)
        files = {path.name: sha256_of(path) for path in debs}
    for language in languages:
        if not pages[language]:
            raise UserError(f"'{root}' has no help in {language}: add Debian's package {packages[language]} to it")
    source = Source(
        "libreoffice",
        "MPL-2.0",
        f"LibreOffice's help in Debian's packages {', '.join(packages.values())}",
        files,
        {"min_words": min_words, "max_words": max_words},
    )
    rows = _rows(pages, pairs, range(min_words, max_words + 1))
    order = attrgetter("src_lang", "trg_lang", "page", "position")
    return write_translations(out_dir, rows, source, limits, lambda rows: rows.sort(key=order), SEGMENT_SCHEMA)


def _locale(language: str) -> str:
    return _LOCALES.get(language, language)


def _pages_of_debs(debs: Sequence[Path], languages: Sequence[str]) -> dict[str, Pages]:
    pages: dict[str, Pages] = {language: {} for language in languages}
    locales = {_locale(language): language for language in languages}
    for deb in tqdm(debs, desc="LibreOffice's help", unit="package", disable=None):
        for name, contents in deb_files(deb):
            path = Path(name)
            if path.is_relative_to(_HELP) and path.suffix == ".html":
                locale, *page = path.relative_to(_HELP).parts
                if locale in locales and page[0] == "text":
                    pages[locales[locale]]["/".join(page)] = page_segments(contents.decode("utf-8"))
    return pages


def _pages_of_folder(folder: Path, languages: Sequence[str]) -> dict[str, Pages]:
    root = folder / _HELP if (folder / _HELP).is_dir() else folder
    pages: dict[str, Pages] = {language: {} for language in languages}
    for language in languages:
        top = root / _locale(language)
        for path in tqdm(sorted(top.glob("text/**/*.html")), desc=f"help in {language}", unit="page", disable=None):
            pages[language][path.relative_to(top).as_posix()] = page_segments(path.read_text(encoding="utf-8"))
    return pages


def _rows(
    pages: Mapping[str, Pages], pairs: Sequence[tuple[str, str]], n_words: Collection[int]
) -> Iterator[tuple[Side, Segment]]:
    for page, english in sorted(pages["en"].items()):
        side = split_of(f"page:{page}")
        for position, (name, text) in enumerate(english.items()):
            if len(text.split()) not in n_words:
                continue
            texts = {language: pages[language].get(page, {}).get(name, "") for language in pages}
            translated = {language for language in texts if letters_of(texts[language]) not in ("", letters_of(text))}
            for source, target in pairs:
                if {source, target} <= translated | {"en"} and letters_of(text):
                    yield (
                        side,
                        Segment(texts[source], texts[target], source, target, page.removesuffix(".html"), position),
                    )


def deb_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name such as `usr/share/doc/x`, contents) of each ordinary file. Raises UserError for a file that is no package.

    A package is an `ar` archive of two tar archives, of which `data.tar` has the files, compressed by xz, gzip or
    zstd.
    """
    try:
        with path.open("rb") as file:
            name, packed = _data_member(file)
        with _opened_tar(name, packed) as archive:
            for member in archive:
                contents = archive.extractfile(member) if member.isfile() else None
                if contents is not None:
                    yield member.name.removeprefix("./"), contents.read()
    except (OSError, ValueError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"'{path}' is not a whole Debian package ({error}): download it again") from error


def _data_member(file: BinaryIO) -> tuple[str, bytes]:
    if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
        raise ValueError("no ar archive")
    while len(header := file.read(_AR_HEADER_SIZE)) == _AR_HEADER_SIZE:
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        packed = file.read(size)
        if name.startswith("data.tar"):
            if len(packed) < size:
                raise ValueError(f"{name} is cut short")
            return name, packed
        file.seek(size % 2, io.SEEK_CUR)  # members begin at even places
    raise ValueError("no data.tar in it")


def _opened_tar(name: str, packed: bytes) -> tarfile.TarFile:
    if name.endswith(".zst"):  # which Python's own library reads from 3.14 on only
        stream: Any = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
        return tarfile.open(fileobj=stream, mode="r|")
    return tarfile.open(fileobj=io.BytesIO(packed))
