"""The pairs of candidates of all groups as flat arrays, so that a metric is a sum over pairs or groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = Sequence[float | None]
Floats = NDArray[np.float64]
Indexes = NDArray[np.int64]
Mask = NDArray[np.bool_]
_LARGEST = np.finfo(np.float64).max


def pair_differences(lists: Sequence[Scores]) -> tuple[Indexes, Floats]:
    """(group [pairs], difference [pairs]): each pair's group, and the score of its first candidate minus the second's.

    Groups come by size, pairs in the order (0, 1), (0, 2), ..., (1, 2), ...: lists of the same sizes give the same
    pairs, so differences in gold and in judged scores are aligned. A difference is NaN where one of the two scores is
    None or NaN; one too large for a float is the largest float.
    """
    by_size: dict[int, list[int]] = {}
    for number, scores in enumerate(lists):
        by_size.setdefault(len(scores), []).append(number)
    groups, differences = [np.zeros(0, np.int64)], [np.zeros(0)]
    for size, members in sorted(by_size.items()):
        first, second = np.triu_indices(size, 1)
        scores_of = score_array([lists[number] for number in members], size)
        with np.errstate(over="ignore"):
            difference = (scores_of[:, first] - scores_of[:, second]).ravel()
        differences.append(np.clip(difference, -_LARGEST, _LARGEST))
        groups.append(np.repeat(np.array(members, np.int64), len(first)))
    return np.concatenate(groups), np.concatenate(differences)


def order_differences(orders: Sequence[Sequence[Scores]], sizes: Sequence[int]) -> tuple[Indexes, Floats]:
    """`pair_differences` of the judgements of groups of these sizes in several orders: differences [orders, pairs].

    NaN also where a group was judged in fewer orders than another one.
    """
    most = max(map(len, orders), default=0)
    unscored: list[list[float | None]] = [[None] * size for size in sizes]
    group, _ = pair_differences(unscored)
    by_order = [
        pair_differences([own[k] if k < len(own) else none for own, none in zip(orders, unscored, strict=True)])
        for k in range(most)
    ]
    return group, np.array([differences for _, differences in by_order]).reshape(most, len(group))


def flat_scores(lists: Sequence[Scores]) -> tuple[Indexes, Floats]:
    """(group [candidates], score [candidates]): all scores one after another, NaN for None."""
    sizes = np.array([len(scores) for scores in lists], np.int64)
    values = [np.nan if score is None else score for scores in lists for score in scores]
    return np.repeat(np.arange(len(lists)), sizes), np.array(values, dtype=np.float64)


def score_array(lists: Sequence[Scores], size: int) -> Floats:
    """The scores [lists, size] of lists that are all of this size, NaN for None."""
    filled = [[np.nan if score is None else score for score in scores] for scores in lists]
    return np.array(filled, dtype=np.float64).reshape(len(lists), size)


def scaled(scores: Floats) -> Floats:
    """The scores over the largest absolute one, NaN staying NaN: for what no scale changes; nothing overflows then."""
    largest = np.max(np.abs(scores), initial=0.0, where=~np.isnan(scores))
    return scores / largest if largest > 0 else scores


def sums_by_group(group: Indexes, values: NDArray[np.generic], n_groups: int) -> Floats:
    """The sum of `values` of each group [groups]."""
    sums: Floats = np.bincount(group, weights=values.astype(np.float64), minlength=n_groups).astype(np.float64)
    return sums
