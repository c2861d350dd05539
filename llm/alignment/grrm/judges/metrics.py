"""Counters of the judges: questions, retries, cache hits, agreement between orders, what the model cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

COUNTERS: dict[str, str] = {
    "questions": "Prompts put to the judge's model.",
    "retries": "Replies drawn again because the one before could not be read.",
    "unanswered": "Prompts that got no reply: too late, no model to be reached, or too long for it.",
    "scores_as_written": "Scores read as they are written, because their probabilities were not to be seen.",
    "cache_hits": "Groups answered from an earlier verdict on the same content.",
    "cache_misses": "Groups that the cache had no verdict for.",
    "order_failures": "Orders of a group left out of its mean because the judge did not score all candidates in them.",
    "agreement_groups": "Groups whose orders could be compared.",
    "agreement_sum": "Sum over these groups of the mean Kendall tau-b between their orders.",
    "chunked_groups": "Groups judged in overlapping chunks.",
    "tokens_written": "Tokens that the judge's model generated.",
    "scored_groups": "Groups that went through a reward model.",
    "tokens_read": "Tokens of prompts and candidates that went through a reward model.",
    "model_milliseconds": "Time spent in the judge's model.",
    "model_scores": "Scores of distinct candidates that a reward model gave.",
    "clipped_scores": "Scores of a reward model further from their group's mean than 0 to 10 has room for.",
}


class JudgeMetrics:
    """Counters named in `COUNTERS`; they start at zero and are thread-safe."""

    def __init__(self) -> None:
        self._values = dict.fromkeys(COUNTERS, 0.0)
        self._lock = threading.Lock()
        self._local = threading.local()

    def add(self, name: str, amount: float = 1.0) -> None:
        """Adds `amount` to counter `name`. Raises KeyError on an unknown name."""
        counted = 0.0 if getattr(self._local, "is_uncounted", False) else amount
        with self._lock:
            self._values[name] += counted

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Ignore what this thread adds within the block, for readiness probes."""
        self._local.is_uncounted = True
        try:
            yield
        finally:
            self._local.is_uncounted = False

    def values(self) -> dict[str, float]:
        """Every counter as it stands."""
        with self._lock:
            return dict(self._values)

    def mean_agreement(self) -> float | None:
        """Mean tau-b between the orders of a group (-1 to 1), None before any group could be compared."""
        values = self.values()
        n_groups = values["agreement_groups"]
        return values["agreement_sum"] / n_groups if n_groups else None
