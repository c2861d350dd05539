"""Source of the kernels' matrix products: in float32 the BLAS in the paddle wheel."""

from __future__ import annotations

import contextlib
import ctypes
from functools import lru_cache
from pathlib import Path

from grrm_csrc.bf16 import ROUNDING, rounding_addresses
from grrm_csrc.openmp import paddle_libraries, paddle_runtime

PRECISIONS = ("float32", *ROUNDING)
_LIBRARIES = ("libmklml_intel.so", "libopenblas.so", "libopenblas.so.0")  # on x86, and elsewhere
_PRODUCT = "cblas_sgemm"
_PACKING = ("cblas_sgemm_pack_get_size", "cblas_sgemm_pack", "cblas_sgemm_compute")


def blas_addresses(precision: str) -> tuple[int, int, int, int] | None:
    """The functions of grrm::Blas (csrc/kernels/gemm.h) for factors of this precision; None where there are none.

    The last three, which lay a matrix out for many products, are 0 where they are missing. Raises ValueError for a
    precision that is not one of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
    if precision in ROUNDING:
        rounded: tuple[int, int, int, int] | None = rounding_addresses(precision)
        return rounded
    product = sgemm_address()
    return None if product is None else (product, *(packing_addresses() or (0, 0, 0)))


def sgemm_address() -> int | None:
    """The address of `cblas_sgemm` in paddle's own BLAS; None where the wheel brings none that is known."""
    return _address(_PRODUCT)


def packing_addresses() -> tuple[int, int, int] | None:
    """Those of what packs a matrix for many products (room, packing, product); None where the BLAS cannot."""
    size, packing, product = map(_address, _PACKING)
    return None if size is None or packing is None or product is None else (size, packing, product)


def _address(function: str) -> int | None:
    folder = paddle_libraries()
    library = None if folder is None else _library(folder)
    symbol = getattr(library, function, None)
    return None if symbol is None else ctypes.cast(symbol, ctypes.c_void_p).value


@lru_cache(maxsize=1)
def _library(folder: Path) -> ctypes.CDLL | None:
    """Paddle's own BLAS."""
    paddle_runtime()  # MKL needs it, and finds it only where it is loaded already
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(str(folder / name))
            if hasattr(library, _PRODUCT):
                return library
    return None
