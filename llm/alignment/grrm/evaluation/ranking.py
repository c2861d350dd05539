"""How well a judge orders candidates: pairwise ranking accuracy against gold scores.

A pair counts when both candidates have a gold score and these differ. A judge's tie on such a pair, and a pair with a
candidate the judge gave no score, are counted as the caller states; their shares are always reported beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

from grrm.errors import UserError
from grrm.evaluation.bootstrap import Interval, bootstrap_ratio

TieRule = Literal["wrong", "half", "skip"]
UnscoredRule = Literal["skip", "wrong"]
TIE_RULES: tuple[str, ...] = get_args(TieRule)
UNSCORED_RULES: tuple[str, ...] = get_args(UnscoredRule)
ALL = "all"


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """Gold and judged scores of one source's candidates, aligned; None where there is no score.

    Raises ValueError when the two differ in length.
    """

    language_pair: str
    gold: Sequence[float | None]
    judged: Sequence[float | None]

    def __post_init__(self) -> None:
        if len(self.gold) != len(self.judged):
            raise ValueError(f"{len(self.gold)} gold scores for {len(self.judged)} judged ones")


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs of one group whose gold scores differ: all, judged ones, and of these the right and the tied ones."""

    pairs: int
    judged: int
    right: int
    tied: int


@dataclass(frozen=True, slots=True)
class RankingScores:
    """Ranking accuracy over some groups; shares lie in [0, 1] and are None where there is nothing to share.

    `coverage` is the share of the pairs that were judged, `tied` the share of the judged pairs that were judged equal,
    `zero_variance` the share of the groups with two scores or more whose scores are all equal.
    """

    accuracy: Interval | None
    n_groups: int
    n_pairs: int
    coverage: float | None
    tied: float | None
    zero_variance: float | None


def count_pairs(gold: Sequence[float | None], judged: Sequence[float | None]) -> PairCounts:
    """The counts of one group."""
    pairs = scored = right = tied = 0
    for (gold_a, judged_a), (gold_b, judged_b) in combinations(zip(gold, judged, strict=True), 2):
        if gold_a is None or gold_b is None or gold_a == gold_b:
            continue
        pairs += 1
        if judged_a is None or judged_b is None:
            continue
        scored += 1
        tied += judged_a == judged_b
        right += judged_a != judged_b and (judged_a > judged_b) == (gold_a > gold_b)
    return PairCounts(pairs, scored, right, tied)


def credit(counts: PairCounts, ties: TieRule, unscored: UnscoredRule) -> tuple[float, float]:
    """(pairs earned, pairs counted) of one group.

    Ties earn nothing, half, or are not counted; pairs that were not judged are not counted, or earn nothing.
    """
    earned = counts.right + (counts.tied / 2 if ties == "half" else 0)
    counted = counts.judged - (counts.tied if ties == "skip" else 0)
    return earned, counted + (counts.pairs - counts.judged if unscored == "wrong" else 0)


def score_ranking(
    groups: Sequence[JudgedGroup],
    *,
    ties: TieRule = "wrong",
    unscored: UnscoredRule = "skip",
    n_resamples: int = 1000,
    seed: int = 0,
) -> RankingScores:
    """Accuracy = pairs earned / pairs counted over all groups, with a 95 % bootstrap interval over groups.

    None where no pair is counted: an accuracy of nothing is not 0. Raises UserError for an unknown rule.
    """
    if ties not in TIE_RULES or unscored not in UNSCORED_RULES:
        raise UserError(
            f"no such rule for ties {ties!r} or unscored pairs {unscored!r}: use {' or '.join(TIE_RULES)}, and "
            f"{' or '.join(UNSCORED_RULES)}"
        )
    counts = [count_pairs(group.gold, group.judged) for group in groups]
    counted = [both for both in (credit(one, ties, unscored) for one in counts) if both[1] > 0]
    n_pairs, n_judged = sum(one.pairs for one in counts), sum(one.judged for one in counts)
    return RankingScores(
        accuracy=bootstrap_ratio(*zip(*counted, strict=True), n_resamples=n_resamples, seed=seed) if counted else None,
        n_groups=len(groups),
        n_pairs=n_pairs,
        coverage=_share(n_judged, n_pairs),
        tied=_share(sum(one.tied for one in counts), n_judged),
        zero_variance=zero_variance_share(group.judged for group in groups),
    )


def zero_variance_share(groups: Iterable[Sequence[float | None]]) -> float | None:
    """Share of the groups with two scores or more whose scores are all equal: no signal for training on groups."""
    scored = [[score for score in group if score is not None] for group in groups]
    comparable = [scores for scores in scored if len(scores) > 1]
    return _share(sum(len(set(scores)) == 1 for scores in comparable), len(comparable))


def score_by_language_pair(
    groups: Sequence[JudgedGroup],
    *,
    ties: TieRule = "wrong",
    unscored: UnscoredRule = "skip",
    n_resamples: int = 1000,
    seed: int = 0,
) -> Mapping[str, RankingScores]:
    """`score_ranking` of each language pair, sorted, and of `all` groups at the end."""
    by_pair: dict[str, list[JudgedGroup]] = {}
    for group in sorted(groups, key=lambda group: group.language_pair):
        by_pair.setdefault(group.language_pair, []).append(group)
    return {
        name: score_ranking(members, ties=ties, unscored=unscored, n_resamples=n_resamples, seed=seed)
        for name, members in [*by_pair.items(), (ALL, groups)]
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
