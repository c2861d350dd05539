"""The kernels as differentiable operators of Paddle (csrc/bindings/operators.cpp), on float32 tensors of the CPU.

Where this paddle runs on GPUs, and there was an nvcc when they were compiled, `score_tokens` takes float32 and bfloat16
tensors of a GPU as well. Tensors of another type, place or shape are an OSError that names the operator.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import paddle
from paddle import _C_ops
from paddle.utils.cpp_extension.extension_utils import load_op_meta_info_and_register_op

from grrm.models.cpu_kernels import call
from grrm_csrc.build import kernels
from grrm_csrc.compiling import obtain
from grrm_csrc.operators import operator_compiler, operator_library


@dataclass(frozen=True, slots=True)
class Operators:
    """Availability of the operators in this process; `reason` explains their absence."""

    registered: bool
    reason: str = ""
    with_cuda: bool = False


@lru_cache(maxsize=1)
def operators() -> Operators:
    """The operators of this process, compiled if this machine has not done so yet."""
    path = kernels().path
    if path is None:
        return Operators(False, kernels().reason)
    library = operator_library(path)
    if library is None:
        return Operators(False, "the paddle wheel brings no headers")
    registered, reason = obtain(library, _registered, operator_compiler())
    return Operators(bool(registered), reason, library.with_cuda)


def available() -> bool:
    """True where the operators could be compiled and registered."""
    return operators().registered


def take(x: paddle.Tensor) -> bool:
    """Return whether `score_tokens` takes tensors on the device of `x`; all operators take those of the CPU."""
    if x.place.is_gpu_place():
        return available() and operators().with_cuda
    return x.place.is_cpu_place() and available()


def _run(name: str, *inputs: Any) -> list[paddle.Tensor]:
    if not operators().registered:
        raise RuntimeError(f"there is no {name}: {operators().reason}")
    return _C_ops._run_custom_op(name, *inputs)  # type: ignore[attr-defined]


def _registered(path: Path) -> bool:
    return bool(load_op_meta_info_and_register_op(str(path)))


def rms_norm(x_NH: paddle.Tensor, weight_H: paddle.Tensor, epsilon: float) -> paddle.Tensor:
    """x / sqrt(mean(x^2) + epsilon) * w over rows."""
    return _run("grrm_rms_norm", x_NH, weight_H, float(epsilon))[0]


def swiglu(gate: paddle.Tensor, up: paddle.Tensor) -> paddle.Tensor:
    """silu(gate) * up, operands of equal shape."""
    return _run("grrm_swiglu", gate, up)[0]


def rotate(
    x_BTHD: paddle.Tensor, cos_PD: paddle.Tensor, sin_PD: paddle.Tensor, positions_BT: paddle.Tensor
) -> paddle.Tensor:
    """Rotary embedding by rows `positions_BT`, which are not checked, of the tables; no gradient for these."""
    return _run("grrm_rotate", x_BTHD, cos_PD, sin_PD, positions_BT)[0]


def attention(
    q_BTHD: paddle.Tensor, k_BTKD: paddle.Tensor, v_BTKD: paddle.Tensor, attention_ranges_3BT: paddle.Tensor
) -> paddle.Tensor:
    """softmax(q k^T / sqrt(D)) v over the tokens each one sees.

    `attention_ranges_3BT` int32 holds for each token the range of its prompt and the begin of its own segment, which
    ends with the token itself: see csrc/kernels/attention.h. Nothing is computed for tokens that are not seen.
    """
    return _run("grrm_attention", q_BTHD, k_BTKD, v_BTKD, attention_ranges_3BT)[0]


def score_tokens(
    logits_NV: paddle.Tensor, labels_N: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """log softmax(logits)[label], the entropy of the softmax and its log-normaliser, [N] each.

    Raises ValueError for a label outside the vocabulary.
    """
    check_labels(labels_N, logits_NV.shape[1])
    return tuple(_run("grrm_score_tokens", logits_NV, labels_N))


def check_labels(labels_N: paddle.Tensor, vocab: int) -> None:
    """Raises ValueError for a label outside the vocabulary, behind which a kernel would read memory of others."""
    if labels_N.shape[0]:
        first, last = int(labels_N.min()), int(labels_N.max())
        if first < 0 or last >= vocab:
            raise ValueError(f"labels from {first} to {last} of a vocabulary of {vocab}")


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
    return call(name, *passed, remedy="use smaller micro-batches")


def new_floats(*shape: int) -> paddle.Tensor:
    """A tensor of this shape with nothing in it yet."""
    return paddle.empty(list(shape), dtype="float32")
