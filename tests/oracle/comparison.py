"""Pairs of what a run wrote and what was recomputed, and the largest relative error of each quantity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from oracle.run_files import Arrays, State


@dataclass
class Comparison:
    """The errors of one run. `errors[quantity]` is the largest over everything that was compared under that name."""

    errors: dict[str, float] = field(default_factory=dict)

    def add(self, quantity: str, recomputed: Any, written: Any, scale: float = 0.0) -> None:
        """Compare arrays of any shape, or numbers: max |difference| / max(max |written|, `scale`).

        `scale` is for a number that is a small difference of large ones. NaN on both sides is equal, on one side not.
        """
        ours, theirs = np.asarray(recomputed, dtype=np.float64), np.asarray(written, dtype=np.float64)
        assert ours.shape == theirs.shape, f"{quantity}: shapes {ours.shape} and {theirs.shape}"
        both = np.isnan(ours) & np.isnan(theirs)
        difference = np.where(both, 0.0, np.abs(ours - theirs)).max(initial=0.0)
        size = max(np.abs(theirs[~both]).max(initial=0.0), scale)
        self._worst(quantity, float(difference / size) if size else float(difference))

    def add_norms(self, quantity: str, recomputed: Arrays, written: Arrays) -> None:
        """Compare weights: the norm of the difference of each to that of what was written, or to 1/1000 of all."""
        norms = {name: float(np.linalg.norm(value)) for name, value in written.items()}
        least = 1e-3 * max(norms.values()) or 1.0
        for name, value in written.items():
            error = float(np.linalg.norm(recomputed[name] - value)) / max(norms[name], least)
            self._worst(quantity, error)

    def add_changes(self, begin: State, ours: State, theirs: State, beta1: float, of: str = "") -> None:
        """Compare what one or more steps of AdamW did.

        First moments are sums of clipped gradients: what the steps added to them.
        """
        kept = beta1 ** (ours.step - begin.step)
        for quantity, part, share in (("gradient", "moment1", kept), ("AdamW's steps", "weights", 1.0)):
            changes = [
                {name: value - share * getattr(begin, part)[name] for name, value in getattr(end, part).items()}
                for end in (ours, theirs)
            ]
            self.add_norms(of + quantity, *changes)

    def _worst(self, quantity: str, error: float) -> None:
        self.errors[quantity] = max(self.errors.get(quantity, 0.0), error if error == error else float("inf"))

    def too_large(self, limits: dict[str, float], otherwise: float) -> dict[str, float]:
        """The errors above their limit."""
        return {name: error for name, error in self.errors.items() if not error <= limits.get(name, otherwise)}


def table(runs: dict[str, Comparison]) -> str:
    """Quantity x run x largest relative error, in Markdown."""
    names = sorted({name for run in runs.values() for name in run.errors})
    lines = [["quantity", *runs], ["---"] * (len(runs) + 1)]
    for name in names:
        lines.append([name, *(f"{run.errors[name]:.0e}" if name in run.errors else "" for run in runs.values())])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
