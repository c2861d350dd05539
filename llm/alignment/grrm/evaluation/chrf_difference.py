"""Is one system better than another by more than the choice of test sentences explains? Corpus chrF, paired.

Paired bootstrap resampling (Koehn 2004): sentences are drawn with replacement, the same ones for both systems, so what
makes a sentence easy or hard for either drops out of the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from grrm.evaluation.bootstrap import Interval, resampled_rows

_ORDER, _BETA = CHRF.CHAR_ORDER, CHRF.BETA

Hypotheses = Sequence[str | None]


def chrf_difference(
    before: Sequence[Hypotheses],
    after: Sequence[Hypotheses],
    references: Sequence[str],
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """By how much corpus chrF is higher after than before, -100 to 100, with its interval over sentences.

    `before[r]` and `after[r]` are the outputs of run r (training repeated with another seed) for all references; the
    difference is the mean over runs. A hypothesis of None counts as empty. The interval says nothing about runs that
    were not made. Outputs that do not differ give 0 with an interval of zero width.
    Raises ValueError on no runs, no references, or lists that do not belong together.
    """
    if not references or not before or len(before) != len(after):
        raise ValueError(f"need references and as many runs before as after, got {len(before)} and {len(after)}")
    if any(len(texts) != len(references) for texts in (*before, *after)):
        raise ValueError(f"need one output of every run for each of the {len(references)} references")
    n_rows, n_runs = len(references), len(before)
    counts_NS = np.stack([_counts(texts, references) for texts in (*before, *after)], axis=1)

    def difference(times_N: NDArray[np.int64]) -> float:
        scores_S = _chrf(np.tensordot(times_N, counts_NS, axes=1))
        return float(scores_S[n_runs:].mean() - scores_S[:n_runs].mean())

    drawn = (
        difference(np.bincount(rows_N, minlength=n_rows))
        for rows_RN in resampled_rows(n_rows, n_resamples, seed)
        for rows_N in rows_RN
    )
    low, high = np.quantile(list(drawn), [(1 - level) / 2, (1 + level) / 2])
    return Interval(difference(np.ones(n_rows, dtype=np.int64)), float(low), float(high))


def _counts(texts: Hypotheses, references: Sequence[str]) -> NDArray[np.float64]:
    """n-grams of each output, of its reference, and in both: (rows, orders of n-grams, 3).

    As in sacrebleu, those of an order that the sentence's own reference is too short for do not count.
    """
    rows = []
    for text, reference in zip(texts, references, strict=True):
        of_both = zip(*(extract_all_char_ngrams(one, _ORDER) for one in (text or "", reference)), strict=True)
        rows.append([_sizes(made if wanted else wanted, wanted) for made, wanted in of_both])
    return np.asarray(rows, dtype=np.float64)


def _sizes(made: Counter[str], wanted: Counter[str]) -> list[int]:
    return [sum(ngrams.values()) for ngrams in (made, wanted, made & wanted)]


def _chrf(sums_SO: NDArray[np.float64]) -> NDArray[np.float64]:
    """chrF2 (Popovic 2015) of summed counts as sacrebleu defines it: orders that one side lacks are left out."""
    made_SO, wanted_SO, both_SO = np.moveaxis(sums_SO, -1, 0)
    counted_SO = (made_SO > 0) & (wanted_SO > 0)
    n_orders_S = np.maximum(counted_SO.sum(axis=1), 1)
    precision_S = (both_SO / np.where(counted_SO, made_SO, 1)).sum(axis=1) / n_orders_S
    recall_S = (both_SO / np.where(counted_SO, wanted_SO, 1)).sum(axis=1) / n_orders_S
    weighted_S = _BETA**2 * precision_S + recall_S
    scores_S: NDArray[np.float64] = (
        100 * (1 + _BETA**2) * precision_S * recall_S / np.where(weighted_S > 0, weighted_S, 1)
    )
    return scores_S
