"""Direct preference optimization by PaddleNLP's DPOTrainer, on packed rows and without keeping logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from grrm.config.stage_config import DPOConfig
from grrm.models.packing import pack_rows
from grrm.models.token_scores import score_hidden
from grrm.paddlenlp_api.preference import DPOTrainer
from grrm.parallel.data_ranks import DataRanks
from grrm.training.gold_groups import GoldGroup
from grrm.training.step_normalised_loss import Counts, total_counts
from grrm.training.supervised_trainer import SupervisedTrainer


@dataclass(frozen=True, slots=True)
class DPOSettings:
    """The settings that PaddleNLP's trainer and criterion read, under their names."""

    beta: float
    loss_type: str
    label_smoothing: float
    sft_loss_ratio: float
    pref_loss_ratio: float = 1.0
    reference_free: bool = False
    lora: bool = False

    @classmethod
    def of(cls, config: DPOConfig) -> DPOSettings:
        """As the argument file says."""
        return cls(config.dpo_beta, config.dpo_loss, config.dpo_label_smoothing, config.sft_loss_ratio)


@dataclass(frozen=True, slots=True)
class PairScores:
    """Log-likelihoods of responses under policy and reference, each chosen one before the rejected one of its pair.

    With the loss "ipo" they are means over a response's tokens; `chosen_nll`, the negative sum of the policy's chosen
    ones, never is.
    """

    policy_R: paddle.Tensor
    ref_R: paddle.Tensor
    chosen_nll: paddle.Tensor

    def columns(self) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Chosen and rejected responses under the policy, then under the reference, [P] each."""
        return self.policy_R[0::2], self.policy_R[1::2], self.ref_R[0::2], self.ref_R[1::2]


class PairTrainer(SupervisedTrainer, DPOTrainer):
    """Trains a policy on preference pairs; loss and metrics are those of `paddlenlp.trl`.

    For a pair with the chosen response c and the rejected one r, log-probabilities of whole responses under the policy
    and under the reference:

        d = (log p(c) - log p(r)) - (log ref(c) - log ref(r))
        loss = mean over pairs of -log sigmoid(beta d) + sft_loss_ratio * (-sum of log p(c) / chosen tokens)

    Pairs and chosen tokens are those of an optimizer step, whatever its micro-batches and ranks.
    (Rafailov et al., arXiv 2305.18290; the second term as EAX trains, with LLaMA-Factory's `pref_ftx`, which takes the
    mean over responses first.) With the loss "ipo" log-probabilities are means over a response's tokens.
    """

    def __init__(self, *, config: DPOConfig, pairs: Sequence[GoldGroup], **kwargs: Any) -> None:
        super().__init__(
            data_collator=lambda numbers: {"numbers": paddle.to_tensor(numbers)},
            train_dataset=range(len(pairs)),  # a batch is laid out when it is trained on
            dpo_config=DPOSettings.of(config),
            disable_dropout=False,
            shuffle=config.dataloader_shuffle,
            **kwargs,
        )
        self.pairs = pairs
        self._metrics: list[dict[str, paddle.Tensor]] = []

    def _wrap_ref_model(self, model: Any) -> Any:
        """The reference is only read: it needs no wrapper, and PaddleNLP's asks for a GPU."""
        return model

    def _prepare_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The pairs of a batch of numbers."""
        return {"pairs": [self.pairs[number] for number in inputs["numbers"].tolist()]}

    def count(self, inputs: Mapping[str, Any]) -> Counts:
        """Pairs and tokens of chosen responses."""
        return _count(self._prepare_inputs(inputs)["pairs"])

    def outputs(self, model: Any, inputs: Mapping[str, Any]) -> PairScores:
        """Log-likelihoods of the pairs."""
        return self._score(self.ref_model_wrapped, model, inputs["pairs"])

    def loss_share(self, outputs: PairScores, inputs: Mapping[str, Any], denominators: Counts) -> paddle.Tensor:
        """These pairs' part of the loss of a step's pairs; their part of the metrics is kept for the log."""
        losses = self._losses(outputs, denominators)
        terms = {name: term.detach() for name, term in losses.items()}
        self._metrics.append({**terms, **self._rewards(outputs, denominators["pairs"])})
        return paddle.add_n([*losses.values()])

    def _losses(self, scores: PairScores, denominators: Counts) -> dict[str, paddle.Tensor]:
        """Both terms of the loss by name, as parts of means over what `denominators` count."""
        columns_P = scores.columns()
        mean, nll = self.dpo_criterion.dpo_loss(*columns_P), scores.chosen_nll / denominators["chosen_tokens"]
        return {
            f"{self.dpo_config.loss_type}_loss": mean * (len(columns_P[0]) / denominators["pairs"]),
            "sft_loss": nll * self.dpo_config.sft_loss_ratio,
        }

    @paddle.no_grad()
    def _rewards(self, scores: PairScores, n_pairs: float) -> dict[str, paddle.Tensor]:
        """PaddleNLP's metrics of pairs, as parts of means over `n_pairs`."""
        chosen_P, rejected_P, ref_chosen_P, ref_rejected_P = scores.columns()
        reward_P, other_P = (
            self.dpo_config.beta * gain_P for gain_P in (chosen_P - ref_chosen_P, rejected_P - ref_rejected_P)
        )
        by_pair = {
            "rewards/chosen": reward_P,
            "rewards/rejected": other_P,
            "rewards/accuracies": (reward_P > other_P).astype("float32"),
            "rewards/margins": reward_P - other_P,
            "logps/rejected": rejected_P,
            "logps/chosen": chosen_P,
        }
        return {name: values_P.sum() / n_pairs for name, values_P in by_pair.items()}

    def _score(self, ref_model: Any, model: Any, pairs: Sequence[GoldGroup]) -> PairScores:
        with paddle.no_grad():
            ref_R, _ = self._log_likelihoods(ref_model, ref_model.lm_head, pairs)
        policy_R, chosen_nll = self._log_likelihoods(model, self.model.lm_head, pairs)
        return PairScores(policy_R, ref_R, chosen_nll)

    def _log_likelihoods(
        self, model: Any, head: Any, pairs: Sequence[GoldGroup]
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Log-likelihoods of responses, each chosen one before the rejected, and the chosen ones' negative sum."""
        prompts = [pair.candidates.prompt_ids for pair in pairs for _ in pair.candidates.responses]
        responses = [response for pair in pairs for response in pair.candidates.responses]
        longest = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
        tokens = pack_rows(prompts, responses, self.tokenizer.pad_token_id, max_tokens=2 * longest)
        hidden_NH = model(**tokens.model_inputs()).hidden_NH
        logprobs_N = score_hidden(hidden_NH, head, tokens.labels_N).logprobs_N
        with paddle.amp.auto_cast(enable=False):
            totals_R = paddle.stack([part.sum() for part in paddle.split(logprobs_N, tokens.lengths_R)])
            chosen_nll = -totals_R[0::2].sum()
            if self.dpo_config.loss_type == "ipo":
                totals_R = totals_R / paddle.to_tensor(tokens.lengths_R, dtype="float32")
        return totals_R, chosen_nll

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Add the means of the metrics of the steps since the last line. A collective for a line of training."""
        if "loss" in logs and self._metrics:
            mine = total_counts({name: float(part) for name, part in parts.items()} for parts in self._metrics)
            total = total_counts(DataRanks.of(self.args).gather(mine))
            steps = len(self._metrics) / self.args.gradient_accumulation_steps
            logs.update({name: value / steps for name, value in total.items()})
            self._metrics.clear()
        super().log(logs, **kwargs)

    @paddle.no_grad()
    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Loss, accuracy and margin of the held-out pairs, which are divided among the ranks. A collective.

        `eval_pair_accuracy` is the share of pairs whose chosen response has become more likely, against the reference,
        by more than the rejected one, `eval_margin` the mean of beta times that difference.
        """
        ranks, size = DataRanks.of(self.args), self.args.per_device_eval_batch_size
        mine = ranks.share_of(self.held_out)
        denominators, losses, margins = _count(self.held_out), list[float](), list[float]()
        self.model.eval()
        for start in range(0, len(mine), size):
            pairs = mine[start : start + size]
            with self.autocast_smart_context_manager():
                scores = self._score(self.ref_model, self.model, pairs)
            losses += map(float, self._losses(scores, denominators).values())
            chosen_P, rejected_P, ref_chosen_P, ref_rejected_P = scores.columns()
            gain_P, loss_P = chosen_P - ref_chosen_P, rejected_P - ref_rejected_P
            margins += (self.dpo_config.beta * (gain_P - loss_P)).tolist()
        self.model.train()
        every = ranks.gather_shares(margins)
        metrics = {
            "eval_loss": sum(ranks.gather(sum(losses))),
            "eval_pair_accuracy": sum(margin > 0 for margin in every) / len(every),
            "eval_margin": sum(every) / len(every),
        }
        line = f"{len(every)} held-out pairs: loss {metrics['eval_loss']:.4g}, accuracy "
        self.record_evaluation(metrics, f"{line}{metrics['eval_pair_accuracy']:.1%}")
        return metrics


def _count(pairs: Sequence[GoldGroup]) -> Counts:
    return {
        "pairs": float(len(pairs)),
        "chosen_tokens": float(sum(len(pair.candidates.responses[0]) for pair in pairs)),
    }
