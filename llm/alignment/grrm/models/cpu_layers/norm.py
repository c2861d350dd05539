"""Root-mean-square norm with a backward pass of six operators."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.models.cpu_layers import operators
from grrm.models.needs_grad import note_needs_grad, only_needed


class RMSNorm(PyLayer):
    """x / sqrt(mean(x^2) + eps) * w over rows [N, H], w [H]; float32."""

    @staticmethod
    def forward(ctx: Any, x_NH: paddle.Tensor, weight_H: paddle.Tensor, epsilon: float) -> paddle.Tensor:
        width = x_NH.shape[-1]
        mean_H1 = paddle.full([width, 1], 1.0 / width)
        inverse_N1 = paddle.rsqrt(paddle.matmul(x_NH * x_NH, mean_H1) + epsilon)
        note_needs_grad(ctx, x_NH, weight_H)
        ctx.save_for_backward(x_NH, weight_H, inverse_N1)
        return x_NH * paddle.matmul(inverse_N1, weight_H.unsqueeze(0))

    @staticmethod
    def backward(ctx: Any, grad_NH: paddle.Tensor) -> Any:
        """With r = 1/rms: dx = r*g*w - x * r^3/H * sum(g*w*x); dw = sum over rows of r*g*x."""
        x_NH, weight_H, inverse_N1 = ctx.saved_tensor()
        width = x_NH.shape[-1]
        product_NH = grad_NH * x_NH
        pull_N1 = paddle.matmul(product_NH, weight_H.unsqueeze(-1)) * inverse_N1 * inverse_N1 * inverse_N1
        direct_NH = grad_NH * paddle.matmul(inverse_N1, weight_H.unsqueeze(0))
        grad_x_NH = direct_NH - x_NH * paddle.matmul(pull_N1, paddle.full([1, width], 1.0 / width))
        return only_needed(ctx, grad_x_NH, paddle.matmul(inverse_N1, product_NH, transpose_x=True).squeeze(0))


def rms_norm(self: Any, hidden_states: paddle.Tensor) -> paddle.Tensor:
    """`forward` of PaddleNLP's RMSNorm layers."""
    width = hidden_states.shape[-1]
    rows_NH = hidden_states.astype("float32").reshape([-1, width])
    norm = operators.rms_norm if operators.available() else RMSNorm.apply
    normed_NH = norm(rows_NH, self.weight.astype("float32"), self.variance_epsilon)
    return normed_NH.reshape(hidden_states.shape).astype(self.weight.dtype)
