"""Pairwise ranking accuracy of a judge against gold scores.

A pair counts when both candidates have a gold score and these differ; on request also when they are equal. A judge's
tie on a pair of different gold, and a pair with a candidate the judge gave no score, are counted as the caller states;
their shares are always reported beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grrm.evaluation.bootstrap import Interval, bootstrap_of_sums, bootstrap_share
from grrm.evaluation.candidate_pairs import Floats, both_differences, score_array

TieRule = Literal["wrong", "half", "skip"]
UnscoredRule = Literal["skip", "wrong", "half"]
GoldTieRule = Literal["skip", "count"]
ALL = "all"


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """Gold and judged scores of one source's candidates, aligned; None where there is no score.

    Where they are known: `orders` holds the judge's scores in each order that it saw the candidates in, aligned like
    `judged`; `systems` the names of what made the candidates; `tokens` what the judge wrote for the group.
    Raises ValueError for lists that differ in length, and for a system that occurs twice.
    """

    language_pair: str
    gold: Sequence[float | None]
    judged: Sequence[float | None]
    orders: Sequence[Sequence[float | None]] = ()
    systems: Sequence[str] | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if len(self.gold) != len(self.judged):
            raise ValueError(f"{len(self.gold)} gold scores for {len(self.judged)} judged ones")
        for scores in self.orders:
            if len(scores) != len(self.gold):
                raise ValueError(f"{len(self.gold)} gold scores for {len(scores)} judged ones in another order")
        if self.systems is not None and not len(set(self.systems)) == len(self.systems) == len(self.gold):
            raise ValueError(f"{len(self.gold)} gold scores need as many different systems, got {list(self.systems)}")


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs that count, for each group [groups]: all, judged ones, of these the right ones and the judge's ties.

    `tied` has the judge's ties on pairs of different gold only.
    """

    pairs: Floats
    judged: Floats
    right: Floats
    tied: Floats


@dataclass(frozen=True, slots=True)
class RankingScores:
    """Ranking accuracy over some groups; shares lie in [0, 1] and are None where there is nothing to share.

    `coverage` is the share of the pairs that were judged, `tied` the share of the judged pairs that were judged equal
    although their gold differs, `zero_variance` the share of the groups with two scores or more whose scores are all
    equal.
    """

    accuracy: Interval | None
    n_groups: int
    n_pairs: int
    coverage: float | None
    tied: float | None
    zero_variance: float | None


def count_pairs(groups: Sequence[JudgedGroup], gold_ties: GoldTieRule = "skip") -> PairCounts:
    """The counts of each group; with "count", a pair of equal gold counts and is right when the judge ties it too."""
    gold, judged, scored = both_differences(*both_scores(groups))
    counts = ~np.isnan(gold) if gold_ties == "count" else ~np.isnan(gold) & (gold != 0)
    scored &= counts
    flags = (counts, scored, scored & (np.sign(gold) == np.sign(judged)), scored & (gold != 0) & (judged == 0))
    return PairCounts(*(flag.sum(axis=1, dtype=np.float64) for flag in flags))


def both_scores(groups: Sequence[JudgedGroup]) -> tuple[Floats, Floats]:
    """Gold and judged scores [P, G]."""
    return score_array([group.gold for group in groups]), score_array([group.judged for group in groups])


def credit(counts: PairCounts, ties: TieRule, unscored: UnscoredRule) -> tuple[Floats, Floats]:
    """(pairs earned, pairs counted) of each group [groups].

    Ties and pairs that were not judged earn nothing, half, or are not counted.
    """
    unjudged, halves = counts.pairs - counts.judged, (ties == "half", unscored == "half")
    earned = counts.right + (halves[0] * counts.tied + halves[1] * unjudged) / 2
    counted = counts.judged - (ties == "skip") * counts.tied + (unscored != "skip") * unjudged
    return earned, counted


def score_ranking(
    groups: Sequence[JudgedGroup],
    *,
    ties: TieRule = "wrong",
    unscored: UnscoredRule = "skip",
    gold_ties: GoldTieRule = "skip",
    n_resamples: int = 1000,
    seed: int = 0,
) -> RankingScores:
    """Accuracy = pairs earned / pairs counted over all groups, with a 95 % bootstrap interval over groups.

    `ties` are the judge's on pairs of different gold. With `gold_ties` "count" and `ties` "wrong" this is the ranking
    reward of GRRM's judge: the share of pairs with the same relation (>, <, =), over all pairs of all groups.
    None where no pair is counted: an accuracy of nothing is not 0.
    """
    counts = count_pairs(groups, gold_ties)
    earned, counted = credit(counts, ties, unscored)
    n_pairs, n_judged = int(counts.pairs.sum()), int(counts.judged.sum())
    return RankingScores(
        accuracy=bootstrap_share(earned, counted, n_resamples=n_resamples, seed=seed),
        n_groups=len(groups),
        n_pairs=n_pairs,
        coverage=_share(n_judged, n_pairs),
        tied=_share(int(counts.tied.sum()), n_judged),
        zero_variance=zero_variance_share(group.judged for group in groups),
    )


def accuracy_difference(
    groups: Sequence[JudgedGroup],
    others: Sequence[JudgedGroup],
    *,
    ties: TieRule = "wrong",
    unscored: UnscoredRule = "skip",
    gold_ties: GoldTieRule = "skip",
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """The accuracy of `others` minus that of `groups`: the same groups in the same order, as two judges scored them.

    Its 95 % interval resamples groups with both judgements of each (paired bootstrap, Koehn 2004), so it is narrower
    than the two accuracies' intervals tell. None where one of the accuracies is not defined.
    """
    sums = [column for some in (groups, others) for column in credit(count_pairs(some, gold_ties), ties, unscored)]

    def difference(earned: Floats, counted: Floats, earned_other: Floats, counted_other: Floats) -> Floats:
        with np.errstate(invalid="ignore"):  # nothing counted: not defined
            return earned_other / counted_other - earned / counted

    return bootstrap_of_sums(difference, *sums, n_resamples=n_resamples, seed=seed) if groups else None


def zero_variance_share(groups: Iterable[Sequence[float | None]]) -> float | None:
    """Share of the groups with two scores or more whose scores are all equal: no signal for training on groups."""
    scored = [[score for score in group if score is not None] for group in groups]
    comparable = [scores for scores in scored if len(scores) > 1]
    return _share(sum(len(set(scores)) == 1 for scores in comparable), len(comparable))


def by_language_pair(groups: Sequence[JudgedGroup]) -> dict[str, list[JudgedGroup]]:
    """The groups of each language pair, pairs sorted, and `all` of them at the end."""
    by_pair: dict[str, list[JudgedGroup]] = {}
    for group in sorted(groups, key=lambda group: group.language_pair):
        by_pair.setdefault(group.language_pair, []).append(group)
    return {**by_pair, ALL: list(groups)}


def _share(part: int, total: int) -> float | None:
    return part / total if total else None
