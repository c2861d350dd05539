"""Glossary terms of a task: what a term of the source is called in the target language, and where it occurs."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grrm.gqm.chat import CONTROL_TOKENS
from grrm.gqm.marks import cap_marks

Terms = tuple[tuple[str, tuple[str, ...]], ...]  # a term of the source, and the translations of it that are right
MAX_TERMS = 1000  # translations of all terms of a task
MAX_TERM_CHARS = 256  # of a term, and of a translation of one
SUFFIX = 3  # letters of an ending
_STEM = 3  # letters that are never taken for an ending
_WORD = re.compile(r"[^\W_]+")
# Of scripts without spaces between words: a term may begin and end anywhere.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


def read_terms(value: Any) -> Terms | str:
    """The terms in a `terms` column, or what is wrong with it: no terms for None and for blank text.

    A value is a mapping from a term to its translation or a list of them, pairs of these, or the JSON text of either.
    """
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return "terms is not JSON"
    if value is None or isinstance(value, str):
        return ()
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        return "terms is not a mapping from terms to their translations"
    # A column of structs has null for the keys of other rows.
    terms = tuple((term, _listed(targets)) for term, targets in pairs if targets is not None)
    if not all(isinstance(term, str) for term, _ in terms):
        return "terms is not a mapping from terms to their translations"
    if (n_targets := sum(len(targets) for _, targets in terms)) > MAX_TERMS:
        return f"{n_targets} translations in terms exceed the limit of {MAX_TERMS}"
    for term, targets in terms:
        longest = max((len(text) for text in (term, *targets) if isinstance(text, str)), default=0)
        if longest > MAX_TERM_CHARS:
            return f"{longest} characters in an entry of terms exceed the limit of {MAX_TERM_CHARS}"
        if not targets or not all(isinstance(text, str) and _pieces(text) for text in (term, *targets)):
            return f"terms has an entry without words {str(term)[:80]!r}"
        if any(token in text for text in (term, *targets) for token in CONTROL_TOKENS):
            return "terms contains a control token of the chat template"
    merged: dict[str, tuple[str, ...]] = {}
    for term, targets in terms:
        merged[term] = (*merged.get(term, ()), *targets)
    return tuple(merged.items())


def terms_mapping(terms: Terms) -> dict[str, list[str]]:
    """The terms as messages and files have them, from which `read_terms` reads the same."""
    return {term: list(targets) for term, targets in terms}


def terms_of_mapping(mapping: Mapping[str, Sequence[str]]) -> Terms:
    """The reverse of `terms_mapping`; nothing is checked."""
    return tuple((term, tuple(targets)) for term, targets in mapping.items())


def _listed(targets: Any) -> tuple[Any, ...]:
    return tuple(targets) if isinstance(targets, Sequence) and not isinstance(targets, str) else (targets,)


def has_term(text: str, term: str) -> bool:
    """True where the words of `term` follow one another in `text`, whatever their case and ending.

    Two words are the same up to endings of `SUFFIX` letters. Of a word of n letters in the term at most (n - 3) / 2 are
    its ending, so that "file" is in "files" but not in "film". Scripts without spaces have no endings.
    """
    return _Words(text, SUFFIX).have(term)


def terms_in(source: str, terms: Terms, suffix: int = SUFFIX) -> Terms:
    """Those of `terms` that occur in `source`."""
    words = _Words(source, suffix)
    return tuple(entry for entry in terms if words.have(entry[0]))


def missing_terms(terms: Terms, translation: str, suffix: int = SUFFIX) -> list[str]:
    """Those of `terms` none of whose translations occurs in `translation`."""
    words = _Words(translation, suffix)
    return [term for term, targets in terms if not any(map(words.have, targets))]


def _pieces(text: str) -> list[str]:
    """The words of a text without case, width and the ways to write an accent."""
    return _WORD.findall(unicodedata.normalize("NFKC", cap_marks(text)).casefold())


class _Words:
    """The words of a text, to be looked up: comparing each with each of a long glossary takes half a minute."""

    def __init__(self, text: str, suffix: int) -> None:
        words = _pieces(text)
        self._joined, self._suffix = "".join(words), suffix
        self._indexes = defaultdict[str, set[int]](set)  # of the words of each stem: what is left of one is an ending
        for index, word in enumerate(words):
            for length in range(max(1, len(word) - suffix), len(word) + 1):
                self._indexes[word[:length]].add(index)

    def have(self, term: str) -> bool:
        """True where the term's words follow one another; looks first where the rarest of them is."""
        sought = _pieces(term)
        if not sought or _UNSPACED.search(term):
            return "".join(sought) in self._joined
        of_words = [[self._indexes.get(stem, set()) for stem in self._stems(word)] for word in sought]
        rarest = min(range(len(sought)), key=lambda k: sum(map(len, of_words[k])))
        starts = (index - rarest for of_stem in of_words[rarest] for index in of_stem)
        return any(
            all(any(start + k in of_stem for of_stem in of_word) for k, of_word in enumerate(of_words))
            for start in starts
        )

    def _stems(self, word: str) -> Iterator[str]:
        """Yield the word without each ending that it may have, itself included."""
        ending = min(self._suffix, max(0, (len(word) - _STEM) // 2))
        return (word[:length] for length in range(len(word) - ending, len(word) + 1))
