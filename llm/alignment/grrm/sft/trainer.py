"""The cold start: supervised fine-tuning on the tokens with labels, on PaddleNLP's Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import paddle
from numpy.typing import NDArray

from grrm.data.dataset import SftItem
from grrm.evaluation.bootstrap import Interval, bootstrap_ratio
from grrm.gqm.languages import language_pair
from grrm.gqm.mt_prompts import recover_mt_task
from grrm.models.packing import pack_rows
from grrm.models.pipeline_policy import numbers_of_tokens
from grrm.models.token_scores import score_hidden
from grrm.paddlenlp_api.training import Trainer
from grrm.parallel.data_ranks import DataRanks
from grrm.training.gold_groups import UNKNOWN_PAIR
from grrm.training.pipeline_steps import PipelineSteps
from grrm.training.step_normalised_loss import Counts
from grrm.training.supervised_trainer import SupervisedTrainer


@dataclass(frozen=True, slots=True)
class SftCollator:
    """`SftItem`s to one batch of packed rows, as long as the longest item or up to `row_tokens`; see `pack_rows`.

    Tokens that are not among the decisive ones of their row weigh `form_weight`, all others 1.
    """

    pad_id: int
    row_tokens: int = 0
    form_weight: float = 1.0

    def __call__(self, items: Sequence[Any]) -> dict[str, Any]:
        prompts = [item.input_ids[: item.prompt_len] for item in items]
        responses = [item.input_ids[item.prompt_len :] for item in items]
        tokens = pack_rows(prompts, responses, self.pad_id, max_tokens=0, row_tokens=self.row_tokens)
        batch = {**tokens.model_inputs(), "labels_N": tokens.labels_N}
        if self.form_weight != 1:
            weights = [_weights(item, self.form_weight) for item in items]
            batch["weights_N"] = paddle.to_tensor(np.concatenate(weights))
        return batch


def _weights(item: SftItem, of_form: float) -> NDArray[np.float32]:
    """The weight of each learned token."""
    if item.decisive is None:
        return np.ones(_n_labels(item), np.float32)
    weights = np.full(_n_labels(item), of_form, np.float32)
    weights[list(item.decisive)] = 1
    return weights


class SftTrainer(SupervisedTrainer, PipelineSteps, Trainer):
    """Negative log-likelihood of the responses, with `train_on_prompt` of the prompts too: mean over a step's tokens.

    With weights w of the tokens t of a step, sum_t w_t nll_t / sum_t w_t; see `SftCollator`.
    """

    def count(self, inputs: Mapping[str, Any]) -> Counts:
        """Tokens with labels, by their weights where they have some."""
        if "weights_N" in inputs:
            return {"tokens": float(inputs["weights_N"].astype("float64").sum())}
        return {"tokens": float(inputs["labels_N"].shape[0])}

    def model_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs without those of the loss."""
        return {name: value for name, value in inputs.items() if name not in ("labels_N", "weights_N")}

    def outputs(self, model: Any, inputs: Mapping[str, Any]) -> paddle.Tensor:
        """Log-probabilities of the labels, [N]."""
        output = model(**self.model_inputs(inputs))
        return _logprobs(self.model, inputs["labels_N"], output.hidden_NH)

    def loss_share(self, outputs: paddle.Tensor, inputs: Mapping[str, Any], denominators: Counts) -> paddle.Tensor:
        """The labels' weighted negative log-likelihood over the weights of all labels of the step."""
        weighted = outputs * inputs["weights_N"] if "weights_N" in inputs else outputs
        return -weighted.sum() / denominators["tokens"]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """`eval_loss`, the mean negative log-likelihood of all held-out tokens with labels, and its sum per row.

        All tokens weigh the same; `eval_loss_decisive` is the mean of the decisive ones where rows have some. The names
        with `_low` and `_high` bound a mean at 95 %, rows resampled; metrics.jsonl has the mean of every language pair
        beside it. The rows are divided among the ranks. A collective. Raises UserError for a loss that is not finite.
        """
        ranks = DataRanks.of(self.args)
        in_order = ranks.gather_shares(self._losses(ranks.share_of(self.held_out)))
        self.refuse_divergence("held-out loss", sum(row.all for row in in_order), self.state.global_step)
        metrics, by_pair = held_out_summary(self.held_out, in_order)
        line = "held-out rows: loss {eval_loss:.4g} [{eval_loss_low:.4g}, {eval_loss_high:.4g}]".format(**metrics)
        if "eval_loss_decisive" in metrics:
            line += ", of decisive tokens {eval_loss_decisive:.4g}".format(**metrics)
        self.record_evaluation(metrics, f"{len(in_order)} {line}", {"eval_language_pairs": by_pair})
        return metrics

    @paddle.no_grad()
    def _losses(self, items: Sequence[SftItem]) -> list[RowLoss]:
        """Those of each row; batches of rows that are about as long."""
        size = self.args.per_device_eval_batch_size
        order = sorted(range(len(items)), key=lambda number: len(items[number].input_ids))
        losses: dict[int, RowLoss] = {}
        self.model.eval()
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            inputs = self.data_collator([items[number] for number in batch])
            labels_N = inputs.pop("labels_N")
            inputs.pop("weights_N", None)
            with self.autocast_smart_context_manager():
                scores_N = numbers_of_tokens(self.model, inputs, partial(_logprobs, self.model, labels_N))
            logprobs_N = scores_N.astype("float32").numpy().astype(np.float64)
            ends = np.cumsum([_n_labels(items[number]) for number in batch])[:-1]
            for number, of_row in zip(batch, np.split(logprobs_N, ends), strict=True):
                decisive = list(items[number].decisive or ())
                losses[number] = RowLoss(-float(of_row.sum()), -float(of_row[decisive].sum()))
        self.model.train()
        return [losses[number] for number in range(len(items))]


def _logprobs(model: Any, labels_N: paddle.Tensor, hidden_NH: paddle.Tensor) -> paddle.Tensor:
    return score_hidden(hidden_NH, model.lm_head, labels_N).logprobs_N


class RowLoss(NamedTuple):
    """The negative log-likelihood of a row's tokens with labels, and of the decisive ones among them."""

    all: float
    decisive: float


def _n_labels(item: SftItem) -> int:
    return len(item.input_ids) - item.prompt_len


def held_out_summary(items: Sequence[SftItem], rows: Sequence[RowLoss]) -> tuple[dict[str, float], dict[str, Any]]:
    """The numbers of an evaluation by name; of each language pair rows, tokens and [mean, low, high] of the loss."""
    losses = [row.all for row in rows]
    metrics = _bounded("eval_loss", bootstrap_ratio(losses, [*map(_n_labels, items)]))
    decisive = [(row.decisive, len(item.decisive)) for item, row in zip(items, rows, strict=True) if item.decisive]
    if decisive:
        metrics |= _bounded("eval_loss_decisive", bootstrap_ratio(*zip(*decisive, strict=True)))
    members: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        task = recover_mt_task(item.prompt_text)
        members.setdefault(UNKNOWN_PAIR if task is None else language_pair(*task[1:]), []).append(number)
    by_pair: dict[str, Any] = {}
    for name, numbers in sorted(members.items()):
        n_labels = [_n_labels(items[number]) for number in numbers]
        loss = bootstrap_ratio([losses[number] for number in numbers], n_labels)
        by_pair[name] = {"rows": len(numbers), "tokens": sum(n_labels), "loss": [loss.mean, loss.low, loss.high]}
    return {**metrics, "eval_loss_per_row": sum(losses) / len(losses)}, by_pair


def _bounded(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
