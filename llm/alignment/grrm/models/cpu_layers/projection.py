"""A linear layer whose bias gets its gradient from a matrix product, and whose products may round to bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from grrm.models.cpu_layers.kernel_calls import call_kernel, new_floats
from grrm.models.cpu_layers.precision import current_precision
from grrm.models.needs_grad import note_needs_grad, only_needed
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
    made = new_floats(m, n)
    how = (int(transpose_x), int(transpose_y), 0.0)
    call_kernel("grrm_multiply", blas_addresses(precision), x, y, made, m, n, k, *how)
    return made


class Projection(PyLayer):
    """x @ w + b over rows x [N, I], w [I, O], b [O] or None."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: paddle.Tensor, weight_IO: paddle.Tensor, bias_O: paddle.Tensor | None, multiply: Multiply
    ) -> paddle.Tensor:
        note_needs_grad(ctx, *(one for one in (x_NI, weight_IO, bias_O) if one is not None))
        ctx.save_for_backward(x_NI, weight_IO)
        ctx.multiply = multiply
        y_NO = multiply(x_NI, weight_IO)
        return y_NO if bias_O is None else y_NO + bias_O.expand_as(y_NO)

    @staticmethod
    def backward(ctx: Any, grad_NO: paddle.Tensor) -> Any:
        """dx = g w^T; dw = x^T g; db = sum over rows of g."""
        x_NI, weight_IO = ctx.saved_tensor()
        for_x, for_weight, *for_bias = ctx.needs_grad
        found = [
            ctx.multiply(grad_NO, weight_IO, transpose_y=True) if for_x else None,
            ctx.multiply(x_NI, grad_NO, transpose_x=True) if for_weight else None,
        ]
        if for_bias:
            ones_1N = paddle.ones([1, grad_NO.shape[0]])
            found.append(paddle.matmul(ones_1N, grad_NO).squeeze(0) if for_bias[0] else None)
        return only_needed(ctx, *found)


class CpuLinear(nn.Linear):
    """`paddle.nn.Linear` with that bias, in the precision that was current when it was built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        precision = current_precision()
        self._rounds = precision != "float32"
        self._multiply = partial(kernel_matmul, precision=precision) if self._rounds else paddle.matmul

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        """input @ weight + bias."""
        is_float = input.dtype == paddle.float32 and self.weight.dtype == paddle.float32
        if not is_float or (self.bias is None and not self._rounds):
            return F.linear(input, self.weight, self.bias)
        rows = Projection.apply(input.reshape([-1, input.shape[-1]]), self.weight, self.bias, self._multiply)
        return rows.reshape([*input.shape[:-1], self.weight.shape[-1]])
