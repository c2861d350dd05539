"""Accuracies that let a comparison be unsure: soft pairwise accuracy of systems, and its counterpart for samples.

Thompson et al. 2024 (arXiv 2409.09598) compare systems, by p-values over many sources. The samples of one policy are no
systems: sample 3 of one source and sample 3 of the next have nothing in common, and a permutation test on one source
says nothing. For them `soft_sample_accuracy` keeps the formula and takes shares of judgements for the p-values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grrm.evaluation.bootstrap import Interval, bootstrap_share
from grrm.evaluation.candidate_pairs import Floats, Scores, pair_differences, scaled, score_array
from grrm.evaluation.ranking import JudgedGroup

_SIGNS_PER_BLOCK = 1 << 22  # bounds the memory of the drawn signs
_ROUNDING = 1e-9  # of the sum of absolute differences: sums that are equal but for rounding count as equal


def soft_pairwise_accuracy(groups: Sequence[JudgedGroup], *, seed: int = 0) -> float | None:
    """SPA = mean of 1 - |p_gold - p_judged| over pairs of systems, from 0 to 1 (arXiv 2409.09598).

    For systems i < j by name, with d_s the difference of their scores in group s over the groups in which gold and
    judge scored both, p is the share of all ways to change the signs of the d_s that give a sum of at least sum(d_s): a
    paired permutation test of "i is better than j".

    All ways are tried if there are at most 1000, else as many random ones, the same for gold and judge.
    Pairs of systems without a common group are left out. None if groups do not name the systems of their candidates or
    there is only one.
    """
    named = [group for group in groups if group.systems is not None]
    return soft_accuracy_of_systems(*_by_system(named), seed=seed)


def soft_accuracy_of_systems(
    gold_PG: Floats, judged_PG: Floats, *, n_permutations: int = 1000, seed: int = 0
) -> float | None:
    """`soft_pairwise_accuracy` of scores with a column per system, NaN where there is none.

    Where permutations are drawn, those of the seed 4 are the ones that mt-metrics-eval draws.
    """
    apart = [pair_differences(scores) for scores in (gold_PG, judged_PG)]
    common = ~np.isnan(apart[0] + apart[1])
    compared, used = common.any(axis=0), common.any(axis=1)
    if not compared.any():
        return None
    p_gold, p_judged = (
        p_values(np.where(common, differences, 0.0)[np.ix_(used, compared)], n_permutations, seed)
        for differences in apart
    )
    return float((1 - np.abs(p_gold - p_judged)).mean())


def p_values(differences: Floats, n_permutations: int = 1000, seed: int = 0) -> Floats:
    """One-sided p-values [pairs] of paired differences [groups, pairs] by changing the signs of whole groups.

    The share of sign changes under which the sum over groups is at least the one observed. A difference of 0 changes
    nothing, so it stands for a group that has none. All 2^groups changes if these are at most `n_permutations`, else
    that many are drawn.
    """
    least = differences.sum(axis=0) - _ROUNDING * np.abs(differences).sum(axis=0)
    n_reached, n_tried = np.zeros(differences.shape[1]), 0
    for signs in _sign_changes(len(differences), n_permutations, seed):
        n_reached += (signs @ differences >= least).sum(axis=0)
        n_tried += len(signs)
    return n_reached / n_tried


def _sign_changes(n_groups: int, n_permutations: int, seed: int) -> Iterator[Floats]:
    """Signs [changes, groups], in blocks."""
    if n_groups < n_permutations.bit_length():
        bits = np.arange(2**n_groups)[:, None] >> np.arange(n_groups) & 1
        yield 2.0 * bits - 1
        return
    generator = np.random.default_rng(seed)
    per_block = max(1, _SIGNS_PER_BLOCK // n_groups)
    for start in range(0, n_permutations, per_block):
        shape = (min(per_block, n_permutations - start), n_groups)
        yield np.where(generator.random(shape, dtype=np.float32) > 0.5, 1.0, -1.0)


def soft_sample_accuracy(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Mean of 1 - |p_gold - p_judged| over the pairs of samples of a group whose gold scores differ.

    p is the share of judgements against the order of the gold scores, a tie being half a judgement: p_gold is 0, and
    p_judged is over the orders in which the group was judged. With a single judgement this is the accuracy with ties
    counted half. Pairs that no judgement scores are left out.
    """
    gold = pair_differences(score_array([judgement.gold for judgement in groups]))
    judged = pair_differences(scores_in_orders([judgement.orders or [judgement.judged] for judgement in groups]))
    scored = ~np.isnan(judged) & ~np.isnan(gold) & (gold != 0)
    n_judgements = scored.sum(axis=0)
    for_gold = np.where(scored, (1 + np.sign(gold) * np.sign(judged)) / 2, 0.0).sum(axis=0)
    earned = (for_gold / np.maximum(n_judgements, 1)).sum(axis=1)
    return bootstrap_share(earned, (n_judgements > 0).sum(axis=1), n_resamples=n_resamples, seed=seed)


def scores_in_orders(orders: Sequence[Sequence[Scores]]) -> Floats:
    """The scores [orders, P, G] of groups that were judged in several orders, NaN where one was judged in fewer."""
    several = [score_array(own) for own in orders]
    shape = [max((array.shape[axis] for array in several), default=0) for axis in (0, 1)]
    scores = np.full((shape[0], len(orders), shape[1]), np.nan)
    for row, array in enumerate(several):
        scores[: array.shape[0], row, : array.shape[1]] = array
    return scores


def _by_system(groups: Sequence[JudgedGroup]) -> tuple[Floats, Floats]:
    """Gold and judged scores [groups, systems], systems by name, NaN where there is none."""
    names = {name: at for at, name in enumerate(sorted({name for group in groups for name in group.systems or ()}))}
    gold, judged = (np.full((len(groups), len(names)), np.nan) for _ in range(2))
    for row, group in enumerate(groups):
        columns = [names[name] for name in group.systems or ()]
        for scores, own in ((gold, group.gold), (judged, group.judged)):
            scores[row, columns] = [np.nan if score is None else score for score in own]
    return scaled(gold), scaled(judged)
