"""A cache of verdicts on the same translations of the same text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.dedup import (
    AroundJudge,
    TextVerdict,
    content_digest,
    each_by_itself,
    expand,
    texts_of,
    verdict_by_text,
)


@dataclass
class CachedJudge(AroundJudge):
    """Asks `inner` only about content that is not among its last `max_entries` verdicts; behind `DistinctJudge`.

    The key is the task and the translations as shown to the judge; ids are ignored. Thread-safe.

    A verdict is kept if it has scores and the judge did not fail on any candidate, so failures are retried; the least
    recently used goes first. A verdict that was kept has the original analysis, 0 `attempts` and `tokens` and no
    `rejections`.

    Groups of equal content in one call are judged once; two threads that miss the same content both ask.
    """

    max_entries: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._entries: OrderedDict[str, TextVerdict] = OrderedDict()
        self._lock = threading.Lock()

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        keys = [content_digest(group.task, texts_of(group)) for group in groups]
        cached = {key: stored for key in set(keys) if (stored := self._get(key)) is not None}
        first: dict[str, int] = {}
        for g, key in enumerate(keys):
            if key not in cached:
                first.setdefault(key, g)
        misses = [groups[g] for g in first.values()]
        for key, group, verdict in zip(first, misses, self.inner.judge(misses), strict=True):
            cached[key] = verdict_by_text(group, verdict, range(len(group.candidates)))
            if _is_scored(cached[key]):
                self._put(key, cached[key])
        self.metrics.add("cache_hits", len(groups) - len(first))
        self.metrics.add("cache_misses", len(first))
        remembered = {key: replace(verdict, attempts=0, tokens=0, rejections=()) for key, verdict in cached.items()}
        return [
            expand(group, each_by_itself(group), (cached if first.get(key) == g else remembered)[key])
            for g, (group, key) in enumerate(zip(groups, keys, strict=True))
        ]

    def _get(self, key: str) -> TextVerdict | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def _put(self, key: str, verdict: TextVerdict) -> None:
        with self._lock:
            self._entries[key] = verdict
            self._entries.move_to_end(key)
            while len(self._entries) > self.max_entries:
                self._entries.popitem(last=False)


def _is_scored(verdict: TextVerdict) -> bool:
    """True if nothing failed; a text that is too long, its own fault, is so again."""
    failures = {outcome for outcome in verdict.outcomes.values() if isinstance(outcome, Status)}
    return bool(verdict.scores) and failures <= {Status.TOO_LONG}
