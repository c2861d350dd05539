"""The segments of a page of LibreOffice's help: paragraphs and headings, which have the same id in every language."""

from __future__ import annotations

import re
from html.parser import HTMLParser

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
