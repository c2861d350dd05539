"""What a policy loss is given and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import paddle


@dataclass(frozen=True, eq=False)
class LossInputs:
    """One micro-batch; B indexes responses, T response tokens. What stands outside the mask is never read.

    logprobs_BT: log-probability of each token under the policy being trained, in nats; carries the gradient.
    old_logprobs_BT: the same under the policy that the update starts from; a constant.
    advantages_BT: see ``grrm.rl.advantages``; a constant.
    mask_BT: 1 on response tokens, 0 elsewhere (bool or number).
    ref_logprobs_BT: the same as logprobs under the frozen reference, or None where no KL is wanted.
    entropy_BT: entropy of the policy at each token, in nats, with its gradient, or None.
    """

    logprobs_BT: paddle.Tensor
    old_logprobs_BT: paddle.Tensor
    advantages_BT: paddle.Tensor
    mask_BT: paddle.Tensor
    ref_logprobs_BT: paddle.Tensor | None = None
    entropy_BT: paddle.Tensor | None = None

    def masked(self) -> LossInputs:
        """Return the inputs with 0 outside the mask and constants cut from the graph: padding cannot spread NaN."""
        mask_BT = self.mask_BT.astype("bool")
        dtype = self.logprobs_BT.dtype

        def constant(values_BT: paddle.Tensor) -> paddle.Tensor:
            return keep(values_BT.detach().astype(dtype), mask_BT)

        return replace(
            self,
            logprobs_BT=keep(self.logprobs_BT, mask_BT),
            old_logprobs_BT=constant(self.old_logprobs_BT),
            advantages_BT=constant(self.advantages_BT),
            mask_BT=mask_BT.astype(dtype),
            ref_logprobs_BT=None if self.ref_logprobs_BT is None else constant(self.ref_logprobs_BT),
            entropy_BT=None if self.entropy_BT is None else keep(self.entropy_BT, mask_BT),
        )


@dataclass(frozen=True, eq=False)
class LossOutput:
    """A scalar loss with its graph, and scalar metrics without one.

    Every metric is a share of the whole batch's value, as the loss is: micro-batches add up. Names that end in
    ``_max`` are the exception and combine by maximum; :func:`merge_metrics` knows both.
    """

    loss: paddle.Tensor
    metrics: dict[str, paddle.Tensor]


def keep(values_BT: paddle.Tensor, mask_BT: paddle.Tensor) -> paddle.Tensor:
    """Return values where the mask is set and 0 elsewhere, with zero gradient there even if a value was NaN."""
    return paddle.where(mask_BT.astype("bool"), values_BT, paddle.zeros_like(values_BT))


def merge_metrics(parts: Sequence[Mapping[str, paddle.Tensor | float]]) -> dict[str, float]:
    """Return the whole batch's metrics from those of its micro-batches or ranks."""
    merged: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            if name not in merged:
                merged[name] = float(value)
            else:
                merged[name] = max(merged[name], float(value)) if name.endswith("_max") else merged[name] + float(value)
    return merged
