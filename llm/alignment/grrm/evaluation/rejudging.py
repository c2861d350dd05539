"""Agreement of another judge with the judge that a run was trained with, on the groups of the run's dump."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.meta_metrics import correlation, kendall_tau_b
from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.gqm.groups import Verdict


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two judges on the same groups; None if nothing can be compared.

    `kendall_tau_b` and `correlation` are within groups, `same_order` is the share of pairs with the same relation
    (above, below, equal), `coverage` the share of the pairs scored by the first that the second scored as well.
    """

    kendall_tau_b: Interval | None
    same_order: Interval | None
    correlation: Interval | None
    coverage: float | None


def agreement(records: Iterable[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> Agreement:
    """Agreement of the verdicts with the scores in the dump."""
    groups = [
        JudgedGroup(
            f"{record['src_lang']}-{record['trg_lang']}",
            [candidate["score"] for candidate in record["candidates"]],
            verdict.scores,
        )
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    ranking = score_ranking(groups, gold_ties="count")
    return Agreement(kendall_tau_b(groups), ranking.accuracy, correlation(groups), ranking.coverage)
