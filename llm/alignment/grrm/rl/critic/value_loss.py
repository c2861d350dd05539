"""The clipped loss of the critic's values."""

from __future__ import annotations

from dataclasses import dataclass

import paddle

from grrm.algorithms.policy_losses.interface import keep
from grrm.rl.losses.aggregation import Denominators, LossOutput, aggregate


@dataclass(frozen=True, eq=False)
class ValueInputs:
    """One micro-batch; R indexes responses, T their tokens. What stands outside the mask is never read.

    values_RT: value of the state before each token under the critic being trained; carries the gradient.
    old_values_RT: the same under the critic that the rollout was scored with; a constant.
    returns_RT: what the values should have been, see ``grrm.algorithms.advantages.gae``; a constant.
    mask_RT: 1 on the tokens of responses that have a reward, 0 elsewhere.
    """

    values_RT: paddle.Tensor
    old_values_RT: paddle.Tensor
    returns_RT: paddle.Tensor
    mask_RT: paddle.Tensor


def value_loss(inputs: ValueInputs, clip_range: float, denominators: Denominators) -> LossOutput:
    """Return the mean over tokens of ``0.5 * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)``.

    A value that has left the range has no gradient, unless it is farther from the return than the clipped one. Source:
    the clipped value loss of OpenAI Baselines' PPO2; Engstrom et al., arXiv 2005.12729, section 3. ``denominators``
    are those of the whole optimizer step, so that the losses of its micro-batches add up.

    Metrics: value_loss; value_clipfrac, the share of tokens whose clipped error is the larger one; value_mean.
    Degenerate: no tokens give 0 with zero gradient.
    """
    mask_RT = inputs.mask_RT
    values_RT, old_RT, returns_RT = (
        keep(numbers_RT, mask_RT) for numbers_RT in (inputs.values_RT, inputs.old_values_RT, inputs.returns_RT)
    )
    # Of bounds and not of the difference, whose rounding would make values within them look clipped.
    clipped_RT = paddle.minimum(paddle.maximum(values_RT, old_RT - clip_range), old_RT + clip_range)
    error_RT, clipped_error_RT = (values_RT - returns_RT) ** 2, (clipped_RT - returns_RT) ** 2

    def mean(numbers_RT: paddle.Tensor) -> paddle.Tensor:
        return aggregate(numbers_RT, mask_RT, "token-mean", denominators.tokens)

    loss = mean(0.5 * paddle.maximum(error_RT, clipped_error_RT))
    metrics = {
        "value_loss": loss,
        "value_clipfrac": mean((clipped_error_RT > error_RT).astype(values_RT.dtype)),
        "value_mean": mean(values_RT),
    }
    return LossOutput(loss, {name: value.detach() for name, value in metrics.items()})
