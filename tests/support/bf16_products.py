"""The matrix products of the kernels for rounded factors, on NumPy arrays."""

from __future__ import annotations

import ctypes

import numpy as np

from grrm_csrc.blas import blas_addresses

_INT, _FLOAT, _AT = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_ROW_MAJOR, _PLAIN, _TRANSPOSED, _PACKED, _RIGHT = 101, 111, 112, 151, 162


class Products:
    """The four functions of a BLAS, as C callers see them."""

    def __init__(self, precision: str = "bfloat16") -> None:
        product, room, pack, packed = blas_addresses(precision)
        sizes = [_INT] * 3
        self.product = ctypes.CFUNCTYPE(None, *[_INT] * 3, *sizes, _FLOAT, _AT, _INT, _AT, _INT, _FLOAT, _AT, _INT)(
            product
        )
        self.room = ctypes.CFUNCTYPE(ctypes.c_size_t, *[_INT] * 4)(room)
        self.pack = ctypes.CFUNCTYPE(None, *[_INT] * 6, _FLOAT, _AT, _INT, _AT)(pack)
        self.packed = ctypes.CFUNCTYPE(None, *[_INT] * 6, _AT, _INT, _AT, _INT, _FLOAT, _AT, _INT)(packed)

    def multiply(self, a, b, c, beta=0.0, a_transposed=False, b_transposed=False):
        """c = a b + beta c, where a and b are given as they are stored."""
        (m, n), k = c.shape, a.shape[0 if a_transposed else 1]
        how = (_TRANSPOSED if a_transposed else _PLAIN, _TRANSPOSED if b_transposed else _PLAIN)
        self.product(
            _ROW_MAJOR, *how, m, n, k, 1.0, a.ctypes.data, a.shape[1], b.ctypes.data, b.shape[1], beta, c.ctypes.data, n
        )

    def lay_out(self, b, transposed=False):
        k, n = b.shape[::-1] if transposed else b.shape
        made = np.empty(self.room(_RIGHT, 16, n, k) // 4 + 16, np.float32)
        made = made[-(made.ctypes.data // 4) % 16 :]
        how = _TRANSPOSED if transposed else _PLAIN
        self.pack(_ROW_MAJOR, _RIGHT, how, 16, n, k, 1.0, b.ctypes.data, b.shape[1], made.ctypes.data)
        return made

    def multiply_packed(self, a, b, c, beta=0.0):
        (m, n), k = c.shape, a.shape[1]
        at = (a.ctypes.data, k, b.ctypes.data, n)
        self.packed(_ROW_MAJOR, _PLAIN, _PACKED, m, n, k, *at, beta, c.ctypes.data, n)
