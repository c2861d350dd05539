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


class VerdictCache:
    """An LRU cache of `max_entries` verdicts, keyed by content; thread-safe, and may be shared by judges."""

    def __init__(self, max_entries: int) -> None:
        if max_entries < 1:
            raise ValueError(f"a cache needs room for at least one verdict, got max_entries {max_entries}")
        self._max_entries = max_entries
        self._entries: OrderedDict[str, TextVerdict] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> TextVerdict | None:
        """The verdict under `key`, None if it is not (or no longer) cached."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: str, verdict: TextVerdict) -> None:
        """Add a verdict, and evict the least recently used ones beyond `max_entries`."""
        with self._lock:
            self._entries[key] = verdict
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    @property
    def n_entries(self) -> int:
        """Number of cached verdicts."""
        with self._lock:
            return len(self._entries)


@dataclass
class CachedJudge(AroundJudge):
    """Asks `inner` only about content that is not in `cache`; behind `DistinctJudge`.

    The key is the task, the translations as shown to the judge, and `settings`; ids are ignored. If several judges
    share a cache, `settings` must name everything else that the scores depend on, including the model.

    A verdict is cached if it has scores and the judge did not fail on any candidate, so failures are retried. A verdict
    from the cache has the original analysis, 0 `attempts` and `tokens` and no `rejections`. Groups of equal content in
    one call are judged once; two threads that miss the same content at the same time both ask.
    """

    cache: VerdictCache
    settings: str = ""

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept."""
        keys = [content_digest(group.task, texts_of(group), self.settings) for group in groups]
        cached = {key: stored for key in set(keys) if (stored := self.cache.get(key)) is not None}
        first: dict[str, int] = {}
        for g, key in enumerate(keys):
            if key not in cached:
                first.setdefault(key, g)
        misses = [groups[g] for g in first.values()]
        for key, group, verdict in zip(first, misses, self.inner.judge(misses), strict=True):
            cached[key] = verdict_by_text(group, verdict, range(len(group.candidates)))
            if _is_scored(cached[key]):
                self.cache.put(key, cached[key])
        self.metrics.add("cache_hits", len(groups) - len(first))
        self.metrics.add("cache_misses", len(first))
        remembered = {key: replace(verdict, attempts=0, tokens=0, rejections=()) for key, verdict in cached.items()}
        return [
            expand(group, each_by_itself(group), (cached if first.get(key) == g else remembered)[key])
            for g, (group, key) in enumerate(zip(groups, keys, strict=True))
        ]


def _is_scored(verdict: TextVerdict) -> bool:
    """True if nothing failed; a text that is too long, its own fault, is so again."""
    failures = {outcome for outcome in verdict.outcomes.values() if isinstance(outcome, Status)}
    return bool(verdict.scores) and failures <= {Status.TOO_LONG}
