"""The check that the options of all gates share."""

from __future__ import annotations

from typing import Any

from grrm.errors import UserError


def require_number(gate: Any, name: str, low: float, high: float = float("inf")) -> None:
    """Raise UserError unless the option `name` of a gate is a number from `low` to `high`."""
    value = getattr(gate, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
        raise UserError(f"Option {name!r} of a gate is {value!r}; give a number {limits}.")
