"""The policy objective of a micro-batch as a function of its tokens' scores, and the metrics that fall out."""

from __future__ import annotations

import paddle

from grrm.models.policy import TokenScores
from grrm.rl.losses.aggregation import Denominators
from grrm.rl.losses.config import PolicyLossConfig
from grrm.rl.losses.interface import LossInputs, merge_metrics
from grrm.rl.losses.objective import policy_objective
from grrm.rl.micro_batch import MicroBatch
from grrm.rl.step_metrics import Gap, logprob_gap, merge_gaps


class BatchLoss:
    """Call it with the scores of all rows, or of some at a time: losses and metrics of the parts add up."""

    def __init__(self, batch: MicroBatch, config: PolicyLossConfig, denominators: Denominators) -> None:
        self.batch, self.config, self.denominators = batch, config, denominators
        self._metrics: list[dict[str, float]] = []
        self._gaps: list[Gap] = []

    def __call__(self, scores: TokenScores, rows: slice | None = None) -> paddle.Tensor:
        """The share of the mini-batch's loss that these rows have, with its graph."""
        batch = self.batch
        logprobs_BR = batch.index.to_rows(scores.logprobs_N, rows)

        def of_rows(values_BR: paddle.Tensor | None) -> paddle.Tensor | None:
            return values_BR if values_BR is None or rows is None else values_BR[rows, : logprobs_BR.shape[1]]

        old_BR = logprobs_BR.detach() if batch.old_logprobs_BR is None else of_rows(batch.old_logprobs_BR)
        mask_BR = of_rows(batch.mask_BR)
        inputs = LossInputs(
            logprobs_BT=logprobs_BR,
            old_logprobs_BT=old_BR,
            advantages_BT=of_rows(batch.advantages_BR),
            mask_BT=mask_BR,
            ref_logprobs_BT=of_rows(batch.ref_logprobs_BR),
            entropy_BT=batch.index.to_rows(scores.entropy_N, rows),
        )
        output = policy_objective(inputs, self.config, self.denominators)
        self._metrics.append({name: float(value) for name, value in output.metrics.items()})
        self._gaps.append(logprob_gap(old_BR, of_rows(batch.engine_logprobs_BR), mask_BR))
        return output.loss

    def metrics(self) -> tuple[dict[str, float], Gap]:
        """Metrics of the rows seen so far, and how far engine and trainer are apart there."""
        return merge_metrics(self._metrics), merge_gaps(self._gaps)
