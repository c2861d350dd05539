"""Calls of the C++ kernels with Paddle tensors, by their addresses; float32."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import paddle

from grrm.models.cpu_kernels import OUT_OF_MEMORY
from grrm_csrc.build import kernels

# What each argument of a kernel is: f and l are tensors of float32 and int64 or None, n is a whole number, x any, b the
# addresses of a BLAS.
_SIGNATURES = {
    "grrm_pack_output_layer": "bfnnnnf",
    "grrm_linear_scores": "bffflffffnnnn",
    "grrm_linear_scores_backward": "bfffflfffffffnnnnn",
    "grrm_multiply": "bfffnnnnnx",
}
_DTYPES = {"f": paddle.float32, "l": paddle.int64}
_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "n": ctypes.c_int64,
    "x": ctypes.c_float,
    "b": lambda addresses: (ctypes.c_void_p * 4)(*addresses),
}


def call_kernel(name: str, *arguments: Any) -> int:
    """Call a kernel, tensors by address, and return what it answers.

    Raises TypeError for a tensor of another type or on another device, MemoryError when the kernel runs out of memory.
    """
    contiguous: list[paddle.Tensor] = []  # temporary copies have to live until the call returns
    passed: list[Any] = []
    for kind, argument in zip(_SIGNATURES[name], arguments, strict=True):
        if kind in _NUMBERS:
            passed.append(_NUMBERS[kind](argument))
            continue
        if argument is None:
            passed.append(None)
            continue
        if argument.dtype != _DTYPES[kind] or not argument.place.is_cpu_place():
            raise TypeError(f"{name} takes {_DTYPES[kind]} on the CPU, not {argument.dtype} on {argument.place}")
        contiguous.append(argument if argument.is_contiguous() else argument.contiguous())
        passed.append(ctypes.c_void_p(contiguous[-1].data_ptr()))
    kernel = getattr(kernels().library, name)
    kernel.restype = ctypes.c_int64
    answer = int(kernel(*passed))
    if answer == OUT_OF_MEMORY:
        raise MemoryError(f"{name} ran out of memory: use smaller micro-batches")
    return answer


def new_floats(*shape: int) -> paddle.Tensor:
    """A tensor of this shape with nothing in it yet."""
    return paddle.empty(list(shape), dtype="float32")
