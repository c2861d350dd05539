"""Orders in which a group's translations are shown to a judge."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

from grrm.gqm.groups import TranslationTask
from grrm.judges.shown import content_digest


def candidate_orders(
    task: TranslationTask, texts: Sequence[str], n_orders: int, *, shuffle: bool = True, seed: int = 0
) -> list[tuple[int, ...]]:
    """`n_orders` different orders of the `texts`, or all there are: indexes, first shown first.

    Orders are different where a reader sees a difference; which copy of a text stands where makes none.
    The orders come in pairs, each the reverse of the other, so that with an even number every two translations stand
    as often one way round as the other and any bias that grows evenly with the position cancels out. The first one is
    drawn like the others, or with `shuffle` off the order given. What is drawn depends on `seed`, the task and the
    set of texts alone: a text stands at the same place whatever order the samples came in. No texts have one order.
    """
    copies = math.prod(math.factorial(count) for count in Counter(texts).values())
    n_orders = min(n_orders, math.factorial(len(texts)) // copies)
    key = content_digest(task, sorted(texts), str(seed))
    orders: dict[tuple[str, ...], tuple[int, ...]] = {}
    draw = 0
    while len(orders) < n_orders:
        order = tuple(range(len(texts))) if draw == 0 and not shuffle else _drawn(texts, f"{key}/{draw}")
        for one in (order, order[::-1]):
            if len(orders) < n_orders:
                orders.setdefault(tuple(texts[k] for k in one), one)
        draw += 1
    return list(orders.values())


def _drawn(texts: Sequence[str], key: str) -> tuple[int, ...]:
    # Sorted by hash and not with `random.shuffle`, whose draws may change between versions of Python.
    def place(k: int) -> bytes:
        first = hashlib.sha256(f"{key}/{texts[k]}".encode("utf-8", "surrogatepass")).digest()
        copy = texts[:k].count(texts[k])
        return first if copy == 0 else hashlib.sha256(first + copy.to_bytes(4, "big")).digest()

    return tuple(sorted(range(len(texts)), key=place))
