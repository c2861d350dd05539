"""Source of the kernels' matrix products: in float32 the BLAS in the paddle wheel, else their own.

Those round their factors to fewer bits; sums are float32.
"""

from __future__ import annotations

import contextlib
import ctypes
from functools import lru_cache
from pathlib import Path

from grrm_csrc.build import kernels
from grrm_csrc.openmp import paddle_libraries, paddle_runtime

# int8: of matrices that were laid out, in steps of each column's largest number / 127. What multiplies them keeps 16
# bits where the processor has dot products of bytes (AVX512-VNNI), elsewhere those of bfloat16.
PRECISIONS = ("float32", "bfloat16", "int8")
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
    if precision != "float32":
        rounding = _rounding(precision)
        return None if rounding is None else rounding[0]
    product = sgemm_address()
    return None if product is None else (product, *(packing_addresses() or (0, 0, 0)))


def is_native(precision: str) -> bool:
    """Return whether this processor has dot products for the precision; else the sums are slower than in float32."""
    rounding = _rounding(precision)
    return rounding is not None and rounding[1]


def _rounding(precision: str) -> tuple[tuple[int, int, int, int], bool] | None:
    """The functions that round, and whether the processor has dot products for them; None without kernels."""
    library = kernels().library
    if library is None:
        return None
    addresses = (ctypes.c_void_p * 4)()
    library.grrm_bf16_blas.restype = ctypes.c_int64
    native = bool(library.grrm_bf16_blas(ctypes.c_int64(precision == "int8"), addresses))
    product, size, packing, packed = (int(address or 0) for address in addresses)
    return (product, size, packing, packed), native


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
