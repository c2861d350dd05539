"""Against position bias: candidates shuffled before they are judged, and judged in several orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grrm.gqm.fences import is_safe_candidate
from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.agreement import mean_agreement
from grrm.judges.distinct import DistinctCandidates, find_shown, spread_verdict
from grrm.judges.interface import Judge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.orders import candidate_orders
from grrm.judges.outcomes import Outcome, ranking_of
from grrm.judges.shown import TextVerdict, labelled, read_shown, show


@dataclass
class ReorderedJudge:
    """Asks `inner` about each group in `permutations` orders (see `candidate_orders`) and averages the scores.

    With one order this is a seeded shuffle and the scores are those of `inner`. With more, a candidate's score is its
    mean over the complete orders, those in which every candidate that any order scored got its score: means over
    different orders could not be compared. Fewer complete orders than half of those asked leave the whole group
    unscored, each candidate with the status of the first order that gave it no score. The ranking follows from the
    means, `attempts` adds up the generations of all orders, and `analysis` holds one part per order. The agreement of
    the complete orders (`mean_agreement`), and the number of orders left out, are added to `metrics`. All orders of
    all groups go to `inner` in one call. Raises ValueError for fewer than one order.
    """

    inner: Judge
    permutations: int = 1
    shuffle: bool = True
    seed: int = 0
    is_safe: Callable[[str], bool] = is_safe_candidate
    metrics: JudgeMetrics = field(default_factory=JudgeMetrics)
    room_for_copies: int = 0  # see `find_shown`; the same as that of `inner`
    name: str = field(init=False)

    def __post_init__(self) -> None:
        if self.permutations < 1:
            raise ValueError(f"permutations must be at least 1, got {self.permutations}")
        self.name = self.inner.name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept."""
        plans = [self._plan(group) for group in groups]
        shown = [
            show(g, distinct, order) for g, (distinct, orders) in zip(groups, plans, strict=True) for order in orders
        ]
        answers = zip(shown, self.inner.judge(shown), strict=True)
        return [
            self._combine(group, distinct, orders, [next(answers) for _ in orders])
            for group, (distinct, orders) in zip(groups, plans, strict=True)
        ]

    def _plan(self, group: Group) -> tuple[DistinctCandidates, list[tuple[int, ...]]]:
        distinct = find_shown(group, self.is_safe, self.room_for_copies)
        orders = candidate_orders(group.task, distinct.texts, self.permutations, shuffle=self.shuffle, seed=self.seed)
        return distinct, orders

    def _combine(
        self,
        group: Group,
        distinct: DistinctCandidates,
        orders: Sequence[tuple[int, ...]],
        answers: Sequence[tuple[Group, Verdict]],
    ) -> Verdict:
        verdicts = [read_shown(shown, verdict, order) for (shown, verdict), order in zip(answers, orders, strict=True)]
        outcomes = self._outcomes(verdicts)
        ordered = [outcomes[k] for k in range(len(distinct.texts))]
        return spread_verdict(
            group,
            distinct,
            ordered,
            tiers=verdicts[0].tiers if len(verdicts) == 1 else ranking_of(ordered),
            analysis="\n\n".join(filter(None, (labelled(shown, verdict.analysis) for shown, verdict in answers))),
            attempts=sum(verdict.attempts for verdict in verdicts),
        )

    def _outcomes(self, verdicts: Sequence[TextVerdict]) -> dict[int, Outcome]:
        complete = complete_orders(verdicts)
        if len(verdicts) > 1:
            self._count(complete, len(verdicts))
        if 2 * len(complete) < len(verdicts):
            return unscored(verdicts)
        return mean_outcomes(complete)

    def _count(self, complete: Sequence[TextVerdict], n_orders: int) -> None:
        self.metrics.add("order_failures", n_orders - len(complete))
        scores_RN = [[verdict.scores[k] for k in sorted(verdict.scores)] for verdict in complete]
        agreement = mean_agreement(scores_RN)
        if agreement is not None:
            self.metrics.add("agreement_groups")
            self.metrics.add("agreement_sum", agreement)


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
    found: dict[int, Outcome] = {}
    statuses = [outcome for v in verdicts for outcome in v.outcomes.values() if isinstance(outcome, Status)]
    for k in verdicts[0].outcomes:
        own = [outcome for v in verdicts if isinstance(outcome := v.outcomes[k], Status)]
        found[k] = (own or statuses)[0]
    return found
