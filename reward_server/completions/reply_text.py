"""The text of a reply as its tokens arrive, and where a stop text ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a character of which some bytes are missing is decoded to


class ReplyText:
    """Tokens in, pieces of text out.

    A piece holds whole characters, and nothing that could still turn out to begin a stop text. `text` is what was given
    out; a stop text and what follows it never is. `token_ids` are those up to the one that completed it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode, self._stops = decode, stops
        self._begin = self._read = 0  # tokens from `_begin` are decoded together, those before `_read` are text already
        self._held = ""  # text that may begin a stop
        self.token_ids: list[int] = []
        self.text, self.is_stopped = "", False

    def add(self, token_ids: Sequence[int], *, is_last: bool = False) -> str:
        """The text that these tokens add; with `is_last` all that is left."""
        pieces = []
        for token_id in token_ids:  # one by one: what comes after a stop does not count
            if self.is_stopped:
                break
            self.token_ids.append(token_id)
            pieces.append(self._give_out(self._new_text(is_last=False)))
        if is_last and not self.is_stopped:
            pieces.append(self._give_out(self._new_text(is_last=True), is_last=True))
        return "".join(pieces)

    def _new_text(self, is_last: bool) -> str:
        known = self._decode(self.token_ids[self._begin : self._read])
        text = self._decode(self.token_ids[self._begin :])
        if text.endswith(_INCOMPLETE) and not is_last:
            return ""
        self._begin, self._read = self._read, len(self.token_ids)
        return text[len(known) :]

    def _give_out(self, new: str, is_last: bool = False) -> str:
        text = self._held + new
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.is_stopped, text, self._held = True, text[: min(found)], ""
        else:
            n_held = 0 if is_last else max((_overlap(text, stop) for stop in self._stops), default=0)
            text, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
