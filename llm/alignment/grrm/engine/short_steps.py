"""Steps that small submissions take alone, between the steps of all."""

from __future__ import annotations

SMALL = 8
SHARE = 2.0
CHEAPER = 3
FORGETTING = 0.99  # a step: what short steps took once is tried again after some hundreds


class ShortSteps:
    """Says when small submissions may take a step of their own.

    Where a step takes longer with more sequences, as on a CPU, a small submission beside a large one would wait for all
    of it at each of its tokens. So after every step of all the small ones may take `SHARE` times as long for
    themselves: they end several times sooner, and the large one loses what their few sequences cost alone. Small are
    those whose sequences are at most 1/`SMALL` of the batch; where a step of theirs is not `CHEAPER` times quicker than
    one of all, as on a GPU, they take none.
    """

    def __init__(self) -> None:
        self._credit_s = self._full_s = self._short_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the next step may be a short one."""
        return self._credit_s > 0 and self._short_s * CHEAPER <= self._full_s

    def record(self, took_s: float, *, is_short: bool, reads: bool) -> None:
        """What a step took; with `reads` prompts were read in it: such a short step says nothing of those to come."""
        if is_short:
            self._credit_s -= took_s
            self._short_s = self._short_s if reads else took_s
        else:
            self._credit_s = SHARE * took_s
            self._full_s = took_s
            self._short_s *= FORGETTING


def is_small(n_sequences: int, n_all: int) -> bool:
    """Whether so many sequences are few among all."""
    return 0 < SMALL * n_sequences <= n_all
