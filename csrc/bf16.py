"""The kernels' own matrix products, whose factors are rounded to fewer bits and whose sums are float32."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from grrm_csrc.build import kernels

# int8: of matrices that were laid out, in steps of each column's largest number / 127. What multiplies them keeps 16
# bits where the processor has dot products of bytes (AVX512-VNNI), elsewhere those of bfloat16.
ROUNDING = ("bfloat16", "int8")


@lru_cache(maxsize=2)
def rounding_addresses(precision: str) -> tuple[int, int, int, int] | None:
    """Return the functions that replace `cblas_sgemm` and its packing; None without kernels."""
    answer = _ask(precision)
    return None if answer is None else answer[0]


def is_native(precision: str = "bfloat16") -> bool:
    """Return whether this processor has dot products for the precision; else the sums are slower than in float32."""
    answer = _ask(precision)
    return answer is not None and answer[1]


def _ask(precision: str) -> tuple[tuple[int, int, int, int], bool] | None:
    library = kernels().library
    if library is None:
        return None
    addresses = (ctypes.c_void_p * 4)()
    library.grrm_bf16_blas.restype = ctypes.c_int64
    native = bool(library.grrm_bf16_blas(ctypes.c_int64(precision == "int8"), addresses))
    product, size, packing, packed = (int(address or 0) for address in addresses)
    return (product, size, packing, packed), native
