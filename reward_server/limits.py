"""Bounds on what one request may hold, and on the work at once.

A refusal points to the place that is at fault. A request has hundreds of texts: where one stands is spelt out only once
it is refused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from grrm.errors import UserError
from grrm.gqm.groups import Group, Status, TranslationTask
from grrm.rewards.messages import ScoreRequest, WireGroup, WireSegment
from grrm.rewards.rows_protocol import RowsRequest

from .problems import RequestProblem
from .settings import Settings

BYTES_PER_TOKEN = 4  # of a request's body, which has names of fields too; the judge's own tokens are known later


class Slots:
    """Slots of requests that are worked on or wait for it; thread-safe.

    A request that is larger than the whole budget is let in where it is alone.
    """

    def __init__(self, max_requests: int, max_tokens: float) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._n_tokens = 0
        self._lock = threading.Lock()
        self.n_requests = 0

    @contextmanager
    def hold(self, n_bytes: int) -> Iterator[None]:
        """Hold a slot for a request whose body has `n_bytes`. Raises RequestProblem 503 where there is none."""
        n_tokens = n_bytes // BYTES_PER_TOKEN
        with self._lock:
            if self.n_requests >= self._max_requests:
                raise RequestProblem(503, "too many requests are under way", code="overloaded", retry_after_s=1)
            if self.n_requests and self._n_tokens + n_tokens > self._max_tokens:
                raise RequestProblem(503, "too many tokens are under way", code="overloaded", retry_after_s=1)
            self.n_requests += 1
            self._n_tokens += n_tokens
        try:
            yield
        finally:
            with self._lock:
                self.n_requests -= 1
                self._n_tokens -= n_tokens


def check_score_request(request: ScoreRequest, settings: Settings) -> None:
    """Raises RequestProblem 422 when there are too many groups or candidates, or a text is too long.

    Candidates may be too long: see `overlong`.
    """
    _check_count(len(request.groups), settings.max_groups, "groups", "groups")
    n_rows = sum(len(group.candidates) for group in request.groups)
    _check_count(n_rows, settings.max_rows, "groups", "candidates in all groups")
    for index, group in enumerate(request.groups):
        location = f"groups[{index}]"
        _check_count(len(group.candidates), settings.max_candidates, f"{location}.candidates", "candidates")
        _check_texts(group, location, settings.max_text_chars)


def check_rows(request: RowsRequest, settings: Settings) -> None:
    """Raises RequestProblem 422 when there are too many rows or groups of them, or a text or a group is too long."""
    _check_count(len(request.src), settings.max_rows, "src", "rows")
    sizes = Counter(zip(request.src, request.tgt, strict=True)).values()
    _check_count(len(sizes), settings.max_groups, "src", "different prompts")
    _check_count(max(sizes, default=0), settings.max_candidates, "src", "rows of one prompt")
    for name, texts in (("src", request.src), ("tgt", request.tgt)):
        for row, text in enumerate(texts):
            if len(text) > settings.max_text_chars:
                raise _too_long(len(text), f"{name}[{row}]", settings.max_text_chars)


def overlong(group: Group, max_chars: int) -> dict[int, Status]:
    """The status TOO_LONG by the index of each candidate with a longer text: it is not judged, the others are."""
    return {
        index: Status.TOO_LONG
        for index, candidate in enumerate(group.candidates)
        if len(candidate.response) > max_chars or len(candidate.translation or "") > max_chars
    }


def check_pairs(groups: Iterable[Iterable[object]], max_pairs: int, field: str) -> None:
    """Raises RequestProblem 422 when there are too many ordered pairs of different candidates in all groups."""
    sizes = [len(set(candidates)) for candidates in groups]
    _check_count(sum(size * (size - 1) for size in sizes), max_pairs, field, "pairs of candidates")


def check_tasks(tasks: Iterable[tuple[str, TranslationTask]], check: Callable[[TranslationTask], None]) -> None:
    """Raises RequestProblem 422 for the first (location, task) that `check` refuses with a UserError."""
    for location, task in tasks:
        try:
            check(task)
        except UserError as error:
            raise RequestProblem(422, str(error), field=location) from error


def _check_texts(group: WireGroup, location: str, max_chars: int) -> None:
    _check_fields(group, ("source", "reference"), location, max_chars)
    n_chars = sum(len(text) for term, targets in group.terms.items() for text in (term, *targets))
    if n_chars > max_chars:
        raise _too_long(n_chars, f"{location}.terms", max_chars)
    for index, segment in enumerate(group.context or ()):
        _check_fields(segment, ("source", "translation"), f"{location}.context[{index}]", max_chars)


def _check_count(count: int, limit: int, field: str, noun: str) -> None:
    if count > limit:
        raise RequestProblem(422, f"{count} {noun} exceed the limit of {limit}", field=field)


def _check_fields(holder: WireGroup | WireSegment, names: Sequence[str], location: str, max_chars: int) -> None:
    for name in names:
        text: str | None = getattr(holder, name)
        if text is not None and len(text) > max_chars:
            raise _too_long(len(text), f"{location}.{name}", max_chars)


def _too_long(n_chars: int, field: str, max_chars: int) -> RequestProblem:
    return RequestProblem(422, f"{n_chars} characters exceed the limit of {max_chars}", field=field)
