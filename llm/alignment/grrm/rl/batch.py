"""One micro-batch from packing to loss: packed rows of responses, and the per-token inputs of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.keys.objective import PolicyLossConfig
from grrm.models.packing import PackedTokens, lay_out
from grrm.models.token_scores import TokenScores
from grrm.rl.experience import pad_right
from grrm.rl.losses.aggregation import Denominators, merge_metrics
from grrm.rl.losses.objective import policy_objective
from grrm.rl.metrics import Gap, logprob_gap, merge_gaps
from grrm.rl.records import Row


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of `compute_loss`; [R, T] tensors are zero beyond each response.

    `old_logprobs_RT` are those of the policy that the update starts from, None where that is the policy itself;
    `ref_logprobs_RT` those of the reference, None without one.
    """

    tokens: PackedTokens
    advantages_RT: paddle.Tensor
    mask_RT: paddle.Tensor
    engine_logprobs_RT: paddle.Tensor
    old_logprobs_RT: paddle.Tensor | None
    ref_logprobs_RT: paddle.Tensor | None


def make_batch(rows: Sequence[Row], pad_id: int, pack_tokens: int = 0) -> Batch:
    """Tensors for one forward and backward pass over `rows`; see `lay_out` for `pack_tokens`."""
    tokens = lay_out([row.prompt_ids for row in rows], [row.token_ids for row in rows], pad_id, pack_tokens)
    width = max(tokens.lengths_R)

    def padded(values: Sequence[NDArray[Any]]) -> paddle.Tensor:
        return paddle.to_tensor(pad_right(values, width).astype(np.float32))

    def optional(values: list[NDArray[Any] | None]) -> paddle.Tensor | None:
        present = [value for value in values if value is not None]
        return padded(present) if len(present) == len(values) else None

    return Batch(
        tokens=tokens,
        advantages_RT=padded([row.advantages_T for row in rows]),
        mask_RT=padded([row.mask_T for row in rows]),
        engine_logprobs_RT=padded([row.engine_logprobs_T for row in rows]),
        old_logprobs_RT=optional([row.old_logprobs_T for row in rows]),
        ref_logprobs_RT=optional([row.ref_logprobs_T for row in rows]),
    )


@dataclass(slots=True)
class BatchObjective:
    """The policy objective of a batch as a function of its tokens' scores, for `chunked_loss`.

    Call it with the scores of all responses, or of some at a time: losses and metrics of the parts add up.
    `denominators` are those of the whole optimizer step.
    """

    batch: Batch
    config: PolicyLossConfig
    denominators: Denominators
    _metrics: list[dict[str, float]] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)

    def __call__(self, scores: TokenScores, responses: slice | None = None) -> paddle.Tensor:
        """These responses' contribution to the mini-batch loss, with its graph."""
        batch, tokens = self.batch, self.batch.tokens
        logprobs_RT = tokens.to_rows(scores.logprobs_N, responses)

        def of_responses(values_RT: paddle.Tensor | None) -> paddle.Tensor | None:
            return values_RT if values_RT is None or responses is None else values_RT[responses, : logprobs_RT.shape[1]]

        old_RT = logprobs_RT.detach() if batch.old_logprobs_RT is None else of_responses(batch.old_logprobs_RT)
        mask_RT, engine_RT = of_responses(batch.mask_RT), of_responses(batch.engine_logprobs_RT)
        inputs = LossInputs(
            logprobs_RT=logprobs_RT,
            old_logprobs_RT=old_RT,
            advantages_RT=of_responses(batch.advantages_RT),
            mask_RT=mask_RT,
            ref_logprobs_RT=of_responses(batch.ref_logprobs_RT),
            entropy_RT=tokens.to_rows(scores.entropy_N, responses),
            engine_logprobs_RT=engine_RT,
        )
        output = policy_objective(inputs, self.config, self.denominators)
        self._metrics.append({name: float(value) for name, value in output.metrics.items()})
        self._gaps.append(logprob_gap(old_RT, engine_RT, mask_RT))
        return output.loss

    def metrics(self) -> tuple[dict[str, float], Gap]:
        """Metrics of the responses so far, and their gap between engine and trainer log-probs.

        No metrics where no response of the optimizer step has a reward: means over nothing are not 0.
        """
        return merge_metrics(self._metrics) if self.denominators.tokens else {}, merge_gaps(self._gaps)
