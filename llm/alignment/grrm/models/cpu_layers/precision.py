"""The precision of the matrix products of training on the CPU: one for all models of a process."""

from __future__ import annotations

PRECISIONS = ("float32", "bfloat16")

_precision = "float32"


def current_precision() -> str:
    """Return the type that factors of products are rounded to: float32, which is none, or bfloat16."""
    return _precision


def set_precision(precision: str) -> None:
    """Choose it, before models are built. Raises ValueError for one that is not known."""
    global _precision
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
    _precision = precision
