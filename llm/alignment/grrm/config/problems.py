"""Mistakes in one file, gathered so that all of them can be told at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from grrm.errors import UserError, UserErrors


class Problems:
    """Sentences on what is wrong. What follows from a key that is wrong in itself is not told a second time.

    `notices` are on what is not wrong but has no effect, or another one than it says.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.notices: list[str] = []
        self._wrong_keys: set[str] = set()

    def add(self, sentence: str) -> None:
        """Note a mistake, unless it names a key that has been noted by `add_key`."""
        if sentence not in self.sentences and not self._wrong_keys & set(re.findall(r"\w+", sentence)):
            self.sentences.append(sentence)

    def notice(self, sentence: str) -> None:
        """Note what a run goes on with, and tells."""
        if sentence not in self.notices:
            self.notices.append(sentence)

    def add_key(self, name: str, sentence: str) -> None:
        """Note that the value of the key `name` cannot be used, whatever the others say."""
        self.sentences.append(sentence)
        self._wrong_keys.add(name)

    def concern(self, names: Iterable[str]) -> bool:
        """True where the value of one of these keys cannot be used, so that nothing can be worked out from them."""
        return not self._wrong_keys.isdisjoint(names)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a UserError that is raised in the block instead of letting it through."""
        try:
            yield
        except UserErrors as error:
            for sentence in error.sentences:
                self.add(sentence)
        except UserError as error:
            self.add(str(error))

    def raise_if_any(self, source: str = "") -> None:
        """Raises UserError with the only sentence, or UserErrors with all of them, when there is one."""
        if len(self.sentences) > 1:
            raise UserErrors(source, self.sentences)
        if self.sentences:
            raise UserError(f"{source}: {self.sentences[0]}" if source else self.sentences[0])
