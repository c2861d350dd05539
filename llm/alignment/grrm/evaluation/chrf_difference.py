"""The difference in corpus chrF between two systems, with an interval by paired bootstrap resampling (Koehn 2004).

Sentences are drawn with replacement, the same ones for both systems, so that the difficulty of a sentence drops out of
the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF

from grrm.evaluation.bootstrap import Interval, resampled_rows
from grrm.evaluation.text_metrics import corpus_statistics

Hypotheses = Sequence[str | None]


def chrf_difference(
    before: Sequence[Hypotheses],
    after: Sequence[Hypotheses],
    references: Sequence[str],
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
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
    metric = CHRF()
    texts = ([text or "" for text in of_run] for of_run in (*before, *after))
    # As sacrebleu's own significance tests have them: [rows, runs, counts].
    counts = np.stack([corpus_statistics(metric, of_run, references) for of_run in texts], axis=1)

    def difference(times: NDArray[np.int64]) -> float:
        scores = [metric._compute_f_score(sums) for sums in np.tensordot(times, counts, axes=1).tolist()]
        return sum(scores[n_runs:]) / n_runs - sum(scores[:n_runs]) / n_runs

    resampled = (
        difference(np.bincount(rows, minlength=n_rows))
        for block in resampled_rows(n_rows, n_resamples, 0)
        for rows in block
    )
    low, high = np.quantile(list(resampled), [(1 - level) / 2, (1 + level) / 2])
    return Interval(difference(np.ones(n_rows, dtype=np.int64)), float(low), float(high))
