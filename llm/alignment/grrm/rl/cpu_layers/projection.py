"""A linear layer whose bias gets its gradient from a matrix product."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer


class BiasedProjection(PyLayer):
    """x @ w + b over rows x [N, I], w [I, O], b [O]."""

    @staticmethod
    def forward(ctx: Any, x_NI: paddle.Tensor, weight_IO: paddle.Tensor, bias_O: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x_NI, weight_IO)
        y_NO = paddle.matmul(x_NI, weight_IO)
        return y_NO + bias_O.expand_as(y_NO)

    @staticmethod
    def backward(ctx: Any, grad_NO: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """dx = g w^T; dw = x^T g; db = sum over rows of g."""
        x_NI, weight_IO = ctx.saved_tensor()
        ones_1N = paddle.ones([1, grad_NO.shape[0]])
        return (
            paddle.matmul(grad_NO, weight_IO, transpose_y=True),
            paddle.matmul(x_NI, grad_NO, transpose_x=True),
            paddle.matmul(ones_1N, grad_NO).squeeze(0),
        )


def linear(self: Any, x: paddle.Tensor) -> paddle.Tensor:
    """`forward` of `paddle.nn.Linear`."""
    if self.bias is None or x.dtype != paddle.float32:
        return F.linear(x, self.weight, self.bias)
    rows = BiasedProjection.apply(x.reshape([-1, x.shape[-1]]), self.weight, self.bias)
    return rows.reshape([*x.shape[:-1], self.weight.shape[-1]])
