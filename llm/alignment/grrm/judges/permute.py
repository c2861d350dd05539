"""Mitigation of position bias: a group is judged in several seeded orders of its candidates; scores are averaged."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.judges.dedup import (
    AroundJudge,
    Outcome,
    TextVerdict,
    content_digest,
    each_by_itself,
    expand,
    expand_to_duplicates,
    joined_verdict,
    ranking_of,
    subgroup,
    texts_of,
    verdict_by_text,
)


@dataclass
class PermutingJudge(AroundJudge):
    """Asks `inner` about each group in `permutations` orders (see `candidate_orders`) and averages the scores.

    It stands behind `DistinctJudge`. With one order this is a seeded shuffle and the scores are those of `inner`. With
    more, a candidate's score is its mean over the complete orders: those that score every candidate that any order
    scored. (Means over different sets of orders could not be compared.)

    If fewer than half of the orders are complete, the group is unscored, each candidate with the status of the first
    order that gave it no score. The ranking follows from the means, `attempts` and `tokens` add up over all orders,
    `analysis` has one part per order, and `order_scores` the scores of each if there are several.

    The agreement of the complete orders (`mean_agreement`) and the number of incomplete ones are added to `metrics`.
    All orders of all groups go to `inner` in one call.
    """

    permutations: int = 1
    shuffle: bool = True
    seed: int = 0

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        plans = [self._orders(group) for group in groups]
        parts = [subgroup(group, order) for group, orders in zip(groups, plans, strict=True) for order in orders]
        answers = zip(parts, self.inner.judge(parts), strict=True)
        return [
            self._combine(group, orders, [next(answers) for _ in orders])
            for group, orders in zip(groups, plans, strict=True)
        ]

    def _orders(self, group: Group) -> list[tuple[int, ...]]:
        return candidate_orders(group.task, texts_of(group), self.permutations, shuffle=self.shuffle, seed=self.seed)

    def _combine(
        self, group: Group, orders: Sequence[tuple[int, ...]], answers: Sequence[tuple[Group, Verdict]]
    ) -> Verdict:
        verdicts = [verdict_by_text(*answer, order) for answer, order in zip(answers, orders, strict=True)]
        outcomes, shown = self._outcomes(verdicts), each_by_itself(group)
        tiers = verdicts[0].tiers if len(verdicts) == 1 else ranking_of(_by_index(outcomes))
        combined = expand(group, shown, joined_verdict(outcomes, tiers, answers))
        if len(verdicts) < 2:
            return combined
        each = tuple(expand_to_duplicates(group, shown, _by_index(of_order.outcomes)).scores for of_order in verdicts)
        return replace(combined, order_scores=each)

    def _outcomes(self, verdicts: Sequence[TextVerdict]) -> dict[int, Outcome]:
        complete = complete_orders(verdicts)
        if len(verdicts) > 1:
            self._count(complete, len(verdicts))
        if 2 * len(complete) < len(verdicts):
            return unscored(verdicts)
        return mean_outcomes(complete)

    def _count(self, complete: Sequence[TextVerdict], n_orders: int) -> None:
        self.metrics.add("order_failures", n_orders - len(complete))
        agreement = mean_agreement([[verdict.scores[k] for k in sorted(verdict.scores)] for verdict in complete])
        if agreement is not None:
            self.metrics.add("agreement_groups")
            self.metrics.add("agreement_sum", agreement)


def _by_index(outcomes: Mapping[int, Outcome]) -> list[Outcome]:
    return [outcomes[k] for k in range(len(outcomes))]


def candidate_orders(
    task: TranslationTask, texts: Sequence[str], n_orders: int, *, shuffle: bool = True, seed: int = 0
) -> list[tuple[int, ...]]:
    """Return `n_orders` different orders of the `texts` as indexes, first shown first; all orders if there are fewer.

    Two orders are different if a reader can tell them apart, so swapping copies of a text makes no new order. Orders
    come in pairs, each the reverse of the other: with an even number, every two translations stand equally often before
    and after each other, and a bias that is linear in the position cancels out.

    The first order is random like the others, or the order of `texts` if `shuffle` is off. Orders depend only on
    `seed`, the task and the set of texts, not on the order of the samples. Without texts there is one (empty) order.
    """
    copies = math.prod(math.factorial(count) for count in Counter(texts).values())
    n_orders = min(n_orders, math.factorial(len(texts)) // copies)
    key = content_digest(task, sorted(texts), str(seed))
    orders: dict[tuple[str, ...], tuple[int, ...]] = {}
    draw = 0
    while len(orders) < n_orders:
        order = tuple(range(len(texts))) if draw == 0 and not shuffle else _draw_order(texts, f"{key}/{draw}")
        for variant in (order, order[::-1]):
            if len(orders) < n_orders:
                orders.setdefault(tuple(texts[k] for k in variant), variant)
        draw += 1
    return list(orders.values())


def _draw_order(texts: Sequence[str], key: str) -> tuple[int, ...]:
    # Sorted by hash and not with `random.shuffle`, whose draws may change between versions of Python.
    def sort_key(k: int) -> bytes:
        first = hashlib.sha256(f"{key}/{texts[k]}".encode("utf-8", "surrogatepass")).digest()
        copy = texts[:k].count(texts[k])
        return first if copy == 0 else hashlib.sha256(first + copy.to_bytes(4, "big")).digest()

    return tuple(sorted(range(len(texts)), key=sort_key))


def complete_orders(verdicts: Sequence[TextVerdict]) -> list[TextVerdict]:
    """The verdicts that score every text that any of them scores; none when no text is scored at all."""
    scored = {k for verdict in verdicts for k in verdict.scores}
    return [verdict for verdict in verdicts if scored and verdict.scores.keys() == scored]


def mean_outcomes(verdicts: Sequence[TextVerdict]) -> dict[int, Outcome]:
    """The mean score of each text over verdicts that score the same texts; the others keep the first one's status."""
    return {
        k: outcome if isinstance(outcome, Status) else math.fsum(v.scores[k] for v in verdicts) / len(verdicts)
        for k, outcome in verdicts[0].outcomes.items()
    }


def unscored(verdicts: Sequence[TextVerdict]) -> dict[int, Outcome]:
    """Every text with the status of the first verdict that does not score it, else with the first failure of any."""
    outcomes: dict[int, Outcome] = {}
    statuses = [outcome for v in verdicts for outcome in v.outcomes.values() if isinstance(outcome, Status)]
    for k in verdicts[0].outcomes:
        own = [outcome for v in verdicts if isinstance(outcome := v.outcomes[k], Status)]
        outcomes[k] = (own or statuses)[0]
    return outcomes


def kendall_tau_b(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation with ties: (C - D) / sqrt(P1 * P2), from -1 to 1 (Kendall 1945, tau-b).

    C and D count the pairs of candidates that both scorings order alike and oppositely, P1 and P2 the pairs that the
    first and the second do not tie. None if a scoring ties everything or has fewer than two candidates, and so gives
    no order.
    """
    signs = [(_sign(first[i] - first[k]), _sign(second[i] - second[k])) for i, k in combinations(range(len(first)), 2)]
    untied = sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs)
    return sum(a * b for a, b in signs) / math.sqrt(untied) if untied else None


def mean_agreement(scorings: Sequence[Sequence[float]]) -> float | None:
    """Mean tau-b over all pairs of scorings of the same candidates, leaving out undefined ones; None if all are."""
    taus = [kendall_tau_b(first, second) for first, second in combinations(scorings, 2)]
    defined = [tau for tau in taus if tau is not None]
    return math.fsum(defined) / len(defined) if defined else None


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
