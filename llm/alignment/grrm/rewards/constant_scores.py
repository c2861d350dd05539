"""The alarm for a judge that gives everything the same score: no candidate fails, and nothing can be learned."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

logger = logging.getLogger(__name__)
FIRST_ALARM = 64  # scores in a row; the next alarm comes at twice as many, and so on


class ConstantScoreAlarm:
    """Warns when a judge gives one and the same score to many translations in a row; thread-safe."""

    def __init__(self, judge: str) -> None:
        self._judge = judge
        self._score: float | None = None
        self._n_equal = 0
        self._next = FIRST_ALARM
        self._lock = threading.Lock()

    def watch(self, scores: Iterable[float]) -> bool:
        """Adds scores of different translations, in any order; True when it warned."""
        with self._lock:
            for score in scores:
                if score != self._score:
                    self._score, self._n_equal, self._next = score, 0, FIRST_ALARM
                self._n_equal += 1
            if self._n_equal < self._next:
                return False
            self._next = 2 * self._n_equal
            logger.warning(
                "%s gave its last %d translations the same score, %g: it tells none from another, and nothing can be "
                "learned from it; look at its prompts and replies",
                self._judge,
                self._n_equal,
                self._score,
            )
        return True
