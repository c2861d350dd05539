"""The cold start: supervised fine-tuning on the tokens with labels, on PaddleNLP's Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from grrm.data.dataset import SftItem
from grrm.models.packing import pack_rows
from grrm.models.token_scores import score_hidden
from grrm.paddlenlp_api.training import Trainer
from grrm.parallel.data_ranks import DataRanks
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.callbacks import LogLastStep, StopsAtDivergence
from grrm.training.checkpoints import MarksCheckpoints
from grrm.training.records import KeepsRecords


@dataclass(frozen=True, slots=True)
class SftCollator:
    """`SftItem`s to one batch of packed rows, as long as the longest item or up to `row_tokens`; see `pack_rows`."""

    pad_id: int
    row_tokens: int = 0

    def __call__(self, items: Sequence[Any]) -> dict[str, Any]:
        prompts = [item.input_ids[: item.prompt_len] for item in items]
        responses = [item.input_ids[item.prompt_len :] for item in items]
        tokens = pack_rows(prompts, responses, self.pad_id, max_tokens=0, row_tokens=self.row_tokens)
        return {**tokens.model_inputs(), "labels_N": tokens.labels_N}


class SftTrainer(MarksCheckpoints, StopsAtDivergence, KeepsRecords, Trainer):
    """Token-mean negative log-likelihood of the responses, with `train_on_prompt` of the prompts too.

    Logs to `metrics.jsonl` and a progress bar on rank 0.
    """

    def __init__(
        self,
        *,
        metrics_log: MetricsLog | None,
        progress: StepProgress | None,
        held_out: Sequence[SftItem] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(callbacks=[LogLastStep()], **kwargs)
        self.metrics_log, self.progress, self.held_out = metrics_log, progress, held_out

    def compute_loss(self, model: Any, inputs: Mapping[str, paddle.Tensor], return_outputs: bool = False) -> Any:
        """Mean over this micro-batch's tokens with labels."""
        output = model(**{name: value for name, value in inputs.items() if name != "labels_N"})
        scores = score_hidden(output.hidden_NH, self.model.lm_head, inputs["labels_N"])
        loss = -scores.logprobs_N.mean()
        return (loss, scores) if return_outputs else loss

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """`eval_loss`, the mean negative log-likelihood of all held-out tokens with labels, and its sum per row.

        The rows are divided among the ranks. A collective.
        """
        ranks = DataRanks.of(self.args)
        parts = ranks.gather(self._log_likelihood(self.held_out[ranks.rank :: ranks.size]))
        total, n_tokens = (sum(part) for part in zip(*parts, strict=True))
        metrics = {"eval_loss": -total / n_tokens, "eval_loss_per_row": -total / len(self.held_out)}
        line = f"{len(self.held_out)} held-out rows: loss {metrics['eval_loss']:.4g}"
        self.record_evaluation(metrics, line)
        return metrics

    @paddle.no_grad()
    def _log_likelihood(self, items: Sequence[SftItem]) -> tuple[float, int]:
        """The log-likelihood of the tokens with labels, and their number."""
        size = self.args.per_device_eval_batch_size
        in_order = sorted(items, key=lambda item: len(item.input_ids))
        total, n_tokens = 0.0, 0
        self.model.eval()
        for start in range(0, len(in_order), size):
            inputs = self.data_collator(in_order[start : start + size])
            labels_N = inputs.pop("labels_N")
            with self.autocast_smart_context_manager():
                scores = score_hidden(self.model(**inputs).hidden_NH, self.model.lm_head, labels_N)
            total += float(scores.logprobs_N.astype("float32").sum())
            n_tokens += len(labels_N)
        self.model.train()
        return total, n_tokens
