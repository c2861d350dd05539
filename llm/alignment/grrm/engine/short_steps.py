"""Steps that small submissions take alone, between the steps of all."""

from __future__ import annotations

SMALL = 8
SHARE = 2.0
CHEAPER = 3
FORGETTING = 0.99  # a step: what short steps took once is tried again after some hundreds


class ShortSteps:
    """Decides when small submissions may take a step of their own.

    Where a step takes longer with more sequences, as on a CPU, a small submission beside a large one would wait for all
    of it at each of its tokens. So after every step of all, the small ones may take `SHARE` times as long for
    themselves: they end several times sooner, and the large one loses little.

    Small are those whose sequences are at most 1/`SMALL` of the batch; if a step of theirs is not `CHEAPER` times
    quicker than one of all, as on a GPU, they take none.
    """

    def __init__(self) -> None:
        self._credit_s = self._full_s = self._short_s = 0.0

    @property
    def is_due(self) -> bool:
        """True if the next step may be a short one."""
        return self._credit_s > 0 and self._short_s * CHEAPER <= self._full_s

    def record(self, duration_s: float, *, is_short: bool, reads: bool) -> None:
        """Record the duration of a step; `reads`: it prefilled prompts, so a short one does not predict the next."""
        if is_short:
            self._credit_s -= duration_s
            self._short_s = self._short_s if reads else duration_s
        else:
            self._credit_s = SHARE * duration_s
            self._full_s = duration_s
            self._short_s *= FORGETTING


def is_small(n_sequences: int, n_all: int) -> bool:
    """Return whether this many sequences are few among all."""
    return 0 < SMALL * n_sequences <= n_all
