"""Direct preference optimization by PaddleNLP's DPOTrainer, on packed rows and without keeping logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from grrm.config.dpo_config import DPOConfig
from grrm.models.packing import pack_rows
from grrm.models.token_scores import score_hidden
from grrm.paddlenlp_api.preference import DPOTrainer
from grrm.parallel.data_ranks import DataRanks
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.callbacks import LogLastStep, StopsAtDivergence
from grrm.training.checkpoints import MarksCheckpoints
from grrm.training.gold_groups import GoldGroup
from grrm.training.group_batches import GroupNumbers, SeededBatches
from grrm.training.records import KeepsRecords


@dataclass(frozen=True, slots=True)
class DPOSettings:
    """The settings that PaddleNLP's trainer and criterion read, under their names."""

    beta: float
    loss_type: str
    label_smoothing: float
    sft_loss_ratio: float
    pref_loss_ratio: float = 1.0
    simpo_gamma: float = 0.5
    dpop_lambda: float = 50.0
    ref_model_update_steps: int = -1
    reference_free: bool = False
    lora: bool = False

    @classmethod
    def of(cls, config: DPOConfig) -> DPOSettings:
        """As the argument file says."""
        return cls(config.dpo_beta, config.dpo_loss, config.dpo_label_smoothing, config.sft_loss_ratio)


class PairTrainer(MarksCheckpoints, StopsAtDivergence, KeepsRecords, DPOTrainer):
    """Trains a policy on preference pairs; loss and metrics are those of `paddlenlp.trl`.

    For a pair with the chosen response c and the rejected one r, log-probabilities of whole responses under the policy
    and under the reference:

        d = (log p(c) - log p(r)) - (log ref(c) - log ref(r))
        loss = mean over pairs of -log sigmoid(beta d) + sft_loss_ratio * (-sum of log p(c) / chosen tokens)

    (Rafailov et al., arXiv 2305.18290; the second term as EAX trains, with LLaMA-Factory's `pref_ftx`, which takes the
    mean over responses first.) With the loss "ipo" log-probabilities are means over a response's tokens.
    """

    def __init__(
        self,
        *,
        config: DPOConfig,
        pairs: Sequence[GoldGroup],
        held_out: Sequence[GoldGroup],
        metrics_log: MetricsLog | None,
        progress: StepProgress | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            data_collator=lambda numbers: {"numbers": paddle.to_tensor(numbers)},
            train_dataset=GroupNumbers(pairs),
            dpo_config=DPOSettings.of(config),
            disable_dropout=False,
            callbacks=[LogLastStep()],
            **kwargs,
        )
        self.config, self.pairs, self.held_out = config, pairs, held_out
        self.metrics_log, self.progress = metrics_log, progress

    def _wrap_ref_model(self, model: Any) -> Any:
        """The reference is only read: it needs no wrapper, and PaddleNLP's asks for a GPU."""
        return model

    def _get_train_sampler(self) -> SeededBatches:
        return SeededBatches.of(self.args, self.train_dataset, self.config.dataloader_shuffle)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The pairs of a batch of numbers."""
        return {"pairs": [self.pairs[number] for number in inputs["numbers"].tolist()]}

    def get_batch_metrics(self, ref_model: Any, model: Any, batch: dict[str, Any], train_eval: str = "train") -> Any:
        """The loss of a batch; its metrics are logged as PaddleNLP does."""
        parts = self._losses(ref_model, model, batch["pairs"])
        self.log_metric(**{name: part for name, part in parts.items() if name != "loss"}, train_eval=train_eval)
        return parts["loss"]

    def _losses(self, ref_model: Any, model: Any, pairs: Sequence[GoldGroup]) -> dict[str, paddle.Tensor]:
        with paddle.no_grad():
            ref_chosen, ref_rejected, _ = self._log_likelihoods(ref_model, ref_model.lm_head, pairs)
        chosen, rejected, sft_loss = self._log_likelihoods(model, self.model.lm_head, pairs)
        dpo_loss = self.dpo_criterion.dpo_loss(chosen, rejected, ref_chosen, ref_rejected)
        return {
            "reference_chosen_logps": ref_chosen,
            "reference_rejected_logps": ref_rejected,
            "policy_chosen_logps": chosen,
            "policy_rejected_logps": rejected,
            "dpo_loss": dpo_loss,
            "sft_loss": sft_loss,
            "loss": dpo_loss + sft_loss,
        }

    def _log_likelihoods(
        self, model: Any, head: Any, pairs: Sequence[GoldGroup]
    ) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Log-likelihoods of the chosen and of the rejected responses, and the weighted loss of a chosen token."""
        prompts = [pair.candidates.prompt_ids for pair in pairs for _ in pair.candidates.responses]
        responses = [response for pair in pairs for response in pair.candidates.responses]
        longest = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
        tokens = pack_rows(prompts, responses, self.tokenizer.pad_token_id, max_tokens=2 * longest)
        hidden_NH = model(**tokens.model_inputs()).hidden_NH
        logprobs_N = score_hidden(hidden_NH, head, tokens.labels_N).logprobs_N.astype("float32")
        totals_R = paddle.stack([part.sum() for part in paddle.split(logprobs_N, tokens.lengths_R)])
        lengths_R = paddle.to_tensor(tokens.lengths_R, dtype="float32")
        sft_loss = -totals_R[0::2].sum() / lengths_R[0::2].sum() * self.dpo_config.sft_loss_ratio
        if self.dpo_config.loss_type == "ipo":
            totals_R = totals_R / lengths_R
        return totals_R[0::2], totals_R[1::2], sft_loss

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Add what PaddleNLP stored of the steps since the last line before anything is recorded."""
        if "loss" in logs:
            for name, values in self._stored_metrics.pop("train", {}).items():
                logs[name] = sum(map(float, values)) / len(values)
        super().log(logs, **kwargs)

    @paddle.no_grad()
    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """Loss, accuracy and margin of the held-out pairs, which are divided among the ranks. A collective.

        `eval_pair_accuracy` is the share of pairs whose chosen response has become more likely, against the reference,
        by more than the rejected one, `eval_margin` the mean of beta times that difference.
        """
        ranks, size = DataRanks.of(self.args), self.args.per_device_eval_batch_size
        mine = self.held_out[ranks.rank :: ranks.size]
        losses, margins = list[float](), list[float]()
        self.model.eval()
        for start in range(0, len(mine), size):
            pairs = mine[start : start + size]
            with self.autocast_smart_context_manager():
                parts = self._losses(self.ref_model, self.model, pairs)
            losses.append(float(parts["loss"]) * len(pairs))
            gain = parts["policy_chosen_logps"] - parts["reference_chosen_logps"]
            loss = parts["policy_rejected_logps"] - parts["reference_rejected_logps"]
            margins += (self.dpo_config.beta * (gain - loss)).tolist()
        self.model.train()
        found = ranks.gather((sum(losses), margins))
        total, every = sum(part[0] for part in found), [margin for part in found for margin in part[1]]
        metrics = {
            "eval_loss": total / len(every),
            "eval_pair_accuracy": sum(margin > 0 for margin in every) / len(every),
            "eval_margin": sum(every) / len(every),
        }
        line = f"{len(every)} held-out pairs: loss {metrics['eval_loss']:.4g}, accuracy "
        self.record_evaluation(metrics, f"{line}{metrics['eval_pair_accuracy']:.1%}")
        return metrics
