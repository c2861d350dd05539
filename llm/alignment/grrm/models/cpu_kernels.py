"""Access to the C++ kernels: the library, addresses of arrays, and gradients for those inputs that need one."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grrm.errors import UserError
from grrm_csrc.build import kernels

if TYPE_CHECKING:
    import paddle

_OUT_OF_MEMORY = -1  # what a kernel returns when it cannot allocate


def available() -> bool:
    """True where the kernels could be compiled and loaded."""
    return kernels().library is not None


def in_use() -> bool:
    """Return whether models are opened on a CPU, and so run on the kernels if there are any."""
    import paddle

    return bool(paddle.device.get_device() == "cpu")


def check_rounding(dtype: str) -> None:
    """Raises UserError where the kernels are missing that round operands of products to `dtype` on a CPU."""
    if not available():
        raise UserError(f"dtype {dtype} needs the C++ kernels on a CPU, but {kernels().reason}: use float32.")


def call(name: str, *arguments: Any, remedy: str = "use fewer sequences at a time or shorter ones") -> int:
    """Call a kernel that answers with a whole number: arrays by address, None as null, numbers as `ctypes` values.

    Arrays must be contiguous and of the type the kernel expects. Raises MemoryError, with the `remedy`, when it
    runs out of memory.
    """
    library = kernels().library
    assert library is not None
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    passed = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in arguments]
    answer = int(function(*passed))
    if answer == _OUT_OF_MEMORY:
        raise MemoryError(f"{name} ran out of memory: {remedy}")
    return answer


def int64s(values: Any) -> NDArray[np.int64]:
    """A contiguous int64 array of `values`, copied only where it has to be."""
    return np.ascontiguousarray(values, dtype=np.int64)


def note_needs_grad(ctx: Any, *inputs: paddle.Tensor) -> None:
    """Remember in a PyLayer's forward which of its tensor inputs, all given in order, take part in training."""
    ctx.needs_grad = [not tensor.stop_gradient for tensor in inputs]


def only_needed(ctx: Any, *gradients: paddle.Tensor | None) -> tuple[paddle.Tensor | None, ...]:
    """Return the backward pass's result: the gradient of each input in order, None where it was frozen."""
    return tuple(gradient if needed else None for gradient, needed in zip(gradients, ctx.needs_grad, strict=True))
