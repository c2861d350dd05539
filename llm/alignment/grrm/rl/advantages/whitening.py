"""Whitening over all tokens of a global batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import FloatArray, sum_rows


def masked_moments(values_RT: FloatArray, mask_RT: npt.NDArray[Any]) -> tuple[FloatArray, float]:
    """Return values minus their mean over the mask (0 elsewhere) [R, T], and their unbiased variance.

    Neither the order of rows nor the amount of padding changes a bit of the result, so any number of ranks agrees.
    Equal values give exactly 0. Raises ValueError with fewer than two tokens, which have no variance.
    """
    mask_RT = np.asarray(mask_RT).astype(bool)
    n_tokens = int(mask_RT.sum())
    if n_tokens < 2:
        raise ValueError(f"whitening needs at least two response tokens, got {n_tokens}")
    shifted_RT = np.where(mask_RT, values_RT - values_RT.min(where=mask_RT, initial=np.inf), 0.0)
    centred_RT = np.where(mask_RT, shifted_RT - math.fsum(sum_rows(shifted_RT)) / n_tokens, 0.0)
    return centred_RT, math.fsum(sum_rows(centred_RT * centred_RT)) / (n_tokens - 1)


def whiten(values_RT: FloatArray, mask_RT: npt.NDArray[Any], epsilon: float = 1e-8) -> FloatArray:
    """Return ``(x - mean) / sqrt(var + epsilon)`` over the mask, 0 elsewhere [R, T]; unbiased variance.

    Degenerate: equal values give 0. Raises ValueError with fewer than two tokens.
    """
    centred_RT, variance = masked_moments(values_RT, mask_RT)
    return centred_RT / math.sqrt(variance + epsilon)


def whiten_or_zero(values_RT: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Whiten, or return zeros where fewer than two tokens leave nothing to compare."""
    if np.count_nonzero(mask_RT) < 2:
        return np.zeros(np.shape(values_RT))
    return whiten(values_RT, mask_RT)
