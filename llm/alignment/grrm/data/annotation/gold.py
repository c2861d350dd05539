"""Gold scores without annotators: sentence chrF against the reference, on a scale of whole numbers from 0 to 10."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from grrm.data.atomic import write_json
from grrm.errors import UserError

TOP = 10
_OUT_OF_REACH = 101.0  # chrF ends at 100


@dataclass(frozen=True, slots=True)
class GoldScale:
    """Ten bounds of chrF, none below the one before; a text's score is the number of bounds at or below its chrF."""

    bounds: tuple[float, ...]

    @classmethod
    def linear(cls) -> GoldScale:
        """A tenth of chrF, rounded half up."""
        return cls(tuple(10.0 * k + 5.0 for k in range(TOP)))

    @classmethod
    def spread(cls, chrfs: Iterable[float], top: int = TOP) -> GoldScale:
        """The scale from 0 to `top` on which these values are spread evenly.

        The samples of a young policy crowd at low chrF, where the linear scale gives most of a group the same score.
        Few or equal values leave some scores unused. Raises ValueError for none.
        """
        ordered = sorted(chrfs)
        if not ordered:
            raise ValueError("there are no values to spread")
        reached = (ordered[len(ordered) * k // (top + 1)] for k in range(1, top + 1))
        return cls((*reached, *[_OUT_OF_REACH] * (TOP - top)))

    @classmethod
    def load(cls, path: Path) -> GoldScale:
        """The scale in a file of `save`. Raises UserError for anything else."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))["bounds"]
            bounds = tuple(float(value) for value in values if not isinstance(value, str))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not a scale of gold scores ({error}): make one with --fit-scale") from error
        if len(bounds) != TOP or any(not before <= after for before, after in pairwise(bounds)):
            raise UserError(f"{path} does not hold ten ascending bounds: make a scale with --fit-scale")
        return cls(bounds)

    def save(self, path: Path) -> None:
        """Write the bounds as JSON."""
        write_json(path, {"bounds": list(self.bounds)}, indent=2)

    def score(self, chrf: float) -> int:
        """0 to 10."""
        return bisect_right(self.bounds, chrf)


def chrf_scorer() -> Callable[[str, str], float]:
    """(text, reference) to sacrebleu's sentence chrF, 0 to 100. Raises UserError when sacrebleu is not installed."""
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise UserError("gold scores need sacrebleu: `pip install 'paddle-grrm[metrics]'`") from error
    metric = CHRF()
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)
