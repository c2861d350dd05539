"""A linear layer whose bias gets its gradient from a matrix product, and whose products may round to bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from grrm.models.cpu_kernels import note_needs_grad, only_needed
from grrm.models.cpu_layers.operators import call_kernel, new_floats
from grrm.models.cpu_layers.precision import current_precision
from grrm_csrc.blas import blas_addresses

# multiply(a, b, transpose_x=…, transpose_y=…) of two matrices, as `paddle.matmul`.
Multiply = Callable[..., paddle.Tensor]


def kernel_matmul(
    x: paddle.Tensor, y: paddle.Tensor, transpose_x: bool = False, transpose_y: bool = False, *, precision: str
) -> paddle.Tensor:
    """x y of float32 matrices whose factors are rounded to `precision`; sums are float32.

    Raises ValueError where they do not fit together.
    """
    m, k = x.shape[::-1] if transpose_x else x.shape
    k_of_y, n = y.shape[::-1] if transpose_y else y.shape
    if k != k_of_y:
        raise ValueError(f"matrices of {x.shape} and {y.shape} do not fit together")
    product = new_floats(m, n)
    how = (int(transpose_x), int(transpose_y), 0.0)
    call_kernel("grrm_multiply", blas_addresses(precision), x, y, product, m, n, k, *how)
    return product


class Projection(PyLayer):
    """x @ w + b over rows x [N, I], w [I, O], b [O] or None."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: paddle.Tensor, weight_IO: paddle.Tensor, bias_O: paddle.Tensor | None, multiply: Multiply
    ) -> paddle.Tensor:
        note_needs_grad(ctx, *(operand for operand in (x_NI, weight_IO, bias_O) if operand is not None))
        ctx.save_for_backward(x_NI, weight_IO)
        ctx.multiply = multiply
        y_NO = multiply(x_NI, weight_IO)
        return y_NO if bias_O is None else y_NO + bias_O.expand_as(y_NO)

    @staticmethod
    def backward(ctx: Any, grad_NO: paddle.Tensor) -> Any:
        """dx = g w^T; dw = x^T g; db = sum over rows of g."""
        x_NI, weight_IO = ctx.saved_tensor()
        for_x, for_weight, *for_bias = ctx.needs_grad
        gradients = [
            ctx.multiply(grad_NO, weight_IO, transpose_y=True) if for_x else None,
            ctx.multiply(x_NI, grad_NO, transpose_x=True) if for_weight else None,
        ]
        if for_bias:
            ones_1N = paddle.ones([1, grad_NO.shape[0]])
            gradients.append(paddle.matmul(ones_1N, grad_NO).squeeze(0) if for_bias[0] else None)
        return only_needed(ctx, *gradients)


def project(
    x: paddle.Tensor,
    weight: paddle.Tensor,
    bias: paddle.Tensor | None = None,
    name: str | None = None,
    *,
    precision: str,
) -> paddle.Tensor:
    """x @ weight + bias; the signature of `F.linear`, with a precision."""
    is_float = x.dtype == paddle.float32 and weight.dtype == paddle.float32
    rounds = precision != "float32"
    if not is_float or (bias is None and not rounds):
        return F.linear(x, weight, bias)
    multiply = partial(kernel_matmul, precision=precision) if rounds else paddle.matmul
    rows = Projection.apply(x.reshape([-1, x.shape[-1]]), weight, bias, multiply)
    return rows.reshape([*x.shape[:-1], weight.shape[-1]])


class CpuLinear(nn.Linear):
    """`paddle.nn.Linear` by `project`, in the precision that was current when it was built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._precision = current_precision()

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        """input @ weight + bias."""
        return project(input, self.weight, self.bias, precision=self._precision)


def with_projection(parallel_linear: type[Any]) -> type[Any]:
    """One of fleet's linear layers, of which each tensor rank has a part, with the same product."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        parallel_linear.__init__(self, *args, **kwargs)
        self.linear = partial(project, precision=current_precision())

    return type(parallel_linear.__name__, (parallel_linear,), {"__init__": __init__})
