"""The difference in corpus chrF between two systems, with an interval by paired bootstrap resampling (Koehn 2004).

Sentences are drawn with replacement, the same ones for both systems, so that the difficulty of a sentence drops out of
the difference.
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
    """Return the gain in corpus chrF from before to after, -100 to 100, with its interval over sentences.

    `before[r]` and `after[r]` are the outputs of run r (training repeated with another seed) for all references; the
    difference is the mean over runs. A hypothesis of None counts as empty. The interval does not cover other runs.
    Outputs that do not differ give 0 with an interval of zero width.

    Raises ValueError on no runs, no references, or lists of different lengths.
    """
    if not references or not before or len(before) != len(after):
        raise ValueError(f"need references and as many runs before as after, got {len(before)} and {len(after)}")
    if any(len(texts) != len(references) for texts in (*before, *after)):
        raise ValueError(f"need one output of every run for each of the {len(references)} references")
    n_rows, n_runs = len(references), len(before)
    counts = np.stack([_counts(texts, references) for texts in (*before, *after)], axis=1)

    def difference(times: NDArray[np.int64]) -> float:
        scores = _chrf(np.tensordot(times, counts, axes=1))
        return float(scores[n_runs:].mean() - scores[:n_runs].mean())

    resampled = (
        difference(np.bincount(rows, minlength=n_rows))
        for block in resampled_rows(n_rows, n_resamples, seed)
        for rows in block
    )
    low, high = np.quantile(list(resampled), [(1 - level) / 2, (1 + level) / 2])
    return Interval(difference(np.ones(n_rows, dtype=np.int64)), float(low), float(high))


def _counts(texts: Hypotheses, references: Sequence[str]) -> NDArray[np.float64]:
    """Character n-grams of each output, of its reference, and in both: (rows, n-gram orders, 3).

    As in sacrebleu, those of an order that the sentence's own reference is too short for do not count.
    """
    rows = []
    for text, reference in zip(texts, references, strict=True):
        of_both = zip(*(extract_all_char_ngrams(side, _ORDER) for side in (text or "", reference)), strict=True)
        rows.append([_sizes(hypothesis if expected else expected, expected) for hypothesis, expected in of_both])
    return np.asarray(rows, dtype=np.float64)


def _sizes(hypothesis: Counter[str], reference: Counter[str]) -> list[int]:
    return [sum(ngrams.values()) for ngrams in (hypothesis, reference, hypothesis & reference)]


def _chrf(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """chrF2 (Popovic 2015) of summed counts (systems, n-gram orders, 3), one number per system.

    As in sacrebleu, n-gram orders that one side lacks are left out.
    """
    hypothesis, reference, both = np.moveaxis(sums, -1, 0)
    counted = (hypothesis > 0) & (reference > 0)
    n_orders = np.maximum(counted.sum(axis=1), 1)
    precision = (both / np.where(counted, hypothesis, 1)).sum(axis=1) / n_orders
    recall = (both / np.where(counted, reference, 1)).sum(axis=1) / n_orders
    weighted = _BETA**2 * precision + recall
    scores: NDArray[np.float64] = 100 * (1 + _BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1)
    return scores
