"""paddle-grrm: group relative reward modelling for machine translation on PaddlePaddle.

`grrm.rank` and `grrm.translate` are loaded when they are first used, so that `import grrm` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "rank", "translate"]

_HOMES = {"rank": "grrm.inference.rank", "translate": "grrm.inference.translate"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
