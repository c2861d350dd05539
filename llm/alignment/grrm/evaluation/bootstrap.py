"""Confidence intervals by percentile bootstrap: rows (sentences or groups) drawn with replacement (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95  # of confidence
_DRAWS_PER_BLOCK = 1 << 22  # bounds the memory of the drawn row numbers


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Sequence[float] | NDArray[np.float64], *, n_resamples: int = 1000, seed: int = 0
) -> Interval:
    """The mean of `values`, rows resampled.

    A single value gives an interval of zero width. Raises ValueError on no values.
    """
    return bootstrap_ratio(values, [1.0] * len(values), n_resamples=n_resamples, seed=seed)


def bootstrap_ratio(
    numerators: Sequence[float] | NDArray[np.float64],
    denominators: Sequence[float] | NDArray[np.float64],
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """sum(numerators) / sum(denominators), whole rows resampled: for counts that come in groups.

    A single row gives an interval of zero width. Raises ValueError on no rows, lists of different lengths, a numerator
    that is not finite, or a denominator that is not above zero: a row that counts for nothing has to be left out.
    """
    if not len(numerators):
        raise ValueError("cannot resample an empty list of values")
    tops, bottoms = (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    if len(tops) != len(bottoms) or not (bottoms > 0).all():
        raise ValueError("need one denominator above zero per numerator")
    interval = bootstrap_of_sums(np.divide, tops, bottoms, n_resamples=n_resamples, seed=seed)
    if interval is None:
        raise ValueError("cannot resample values that are not finite")
    return interval


def bootstrap_share(earned: NDArray[Any], counted: NDArray[Any], *, n_resamples: int, seed: int) -> Interval | None:
    """`bootstrap_ratio` of the rows that count for something; None where none does."""
    used = counted > 0
    return bootstrap_ratio(earned[used], counted[used], n_resamples=n_resamples, seed=seed) if used.any() else None


def bootstrap_of_sums(
    statistic: Callable[..., NDArray[np.float64]],
    *columns: Sequence[float] | NDArray[np.float64],
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """`statistic` of the columns' sums, whole rows resampled: for what is not a ratio of two sums.

    `statistic` gets an array of sums [resamples] per column and returns its values [resamples], NaN where it is not
    defined; such resamples are left out. None where it is not defined on the rows as they are, or on no resample.
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in columns]
    value = float(statistic(*(values.sum(keepdims=True) for values in arrays))[0])
    if not np.isfinite(value):
        return None
    resampled = np.concatenate(
        [
            statistic(*(values[rows].sum(axis=1) for values in arrays))
            for rows in resampled_rows(len(arrays[0]), n_resamples, seed)
        ]
    )
    resampled = resampled[np.isfinite(resampled)]
    if not len(resampled):
        return None
    return interval_of(value, resampled)


def interval_of(value: float, resampled: Sequence[float] | NDArray[np.float64], level: float = LEVEL) -> Interval:
    """The interval between the percentiles of a statistic's resampled values."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def resampled_rows(n_rows: int, n_resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Row numbers of all resamples, in blocks (resamples, rows); the block size does not change them."""
    generator = np.random.default_rng(seed)
    per_block = max(1, _DRAWS_PER_BLOCK // n_rows)
    for start in range(0, n_resamples, per_block):
        yield generator.integers(0, n_rows, size=(min(per_block, n_resamples - start), n_rows))
