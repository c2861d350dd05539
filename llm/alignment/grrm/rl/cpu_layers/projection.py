"""A linear layer whose bias gets its gradient from a matrix product."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from grrm.rl.cpu_layers.wanted import note_inputs, only_wanted


class BiasedProjection(PyLayer):
    """x @ w + b over rows x [N, I], w [I, O], b [O]."""

    @staticmethod
    def forward(ctx: Any, x_NI: paddle.Tensor, weight_IO: paddle.Tensor, bias_O: paddle.Tensor) -> paddle.Tensor:
        note_inputs(ctx, x_NI, weight_IO, bias_O)
        ctx.save_for_backward(x_NI, weight_IO)
        y_NO = paddle.matmul(x_NI, weight_IO)
        return y_NO + bias_O.expand_as(y_NO)

    @staticmethod
    def backward(ctx: Any, grad_NO: paddle.Tensor) -> Any:
        """dx = g w^T; dw = x^T g; db = sum over rows of g."""
        x_NI, weight_IO = ctx.saved_tensor()
        ones_1N = paddle.ones([1, grad_NO.shape[0]])
        return only_wanted(
            ctx,
            paddle.matmul(grad_NO, weight_IO, transpose_y=True),
            paddle.matmul(x_NI, grad_NO, transpose_x=True),
            paddle.matmul(ones_1N, grad_NO).squeeze(0),
        )


class CpuLinear(nn.Linear):
    """`paddle.nn.Linear` with that bias."""

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        """input @ weight + bias."""
        if self.bias is None or input.dtype != paddle.float32 or self.weight.dtype != paddle.float32:
            return F.linear(input, self.weight, self.bias)
        rows = BiasedProjection.apply(input.reshape([-1, input.shape[-1]]), self.weight, self.bias)
        return rows.reshape([*input.shape[:-1], self.weight.shape[-1]])
