"""Training of a reward model on PaddleNLP's Trainer: a loss on differences within groups, held-out groups scored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from grrm.config import RewardModelConfig
from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.candidate_pairs import both_differences
from grrm.evaluation.meta_metrics import correlation
from grrm.evaluation.ranking import ALL, JudgedGroup, both_scores, by_language_pair, score_ranking
from grrm.paddlenlp_api.training import Trainer
from grrm.parallel.data_ranks import DataRanks
from grrm.reward_model.loss import count_pairs, group_loss
from grrm.training.gold_groups import GoldGroup
from grrm.training.step_normalised_loss import Counts
from grrm.training.supervised_trainer import SupervisedTrainer

# Units of the loss: a margin of 3 is odds of 20 to 1 that the pair is in order.
MARGIN_EDGES = tuple(0.5 * step for step in range(-6, 7))


def pair_margins(groups: Sequence[JudgedGroup]) -> NDArray[np.float64]:
    """Score of the better candidate minus that of the worse one [pairs], for every pair of different gold."""
    gold, judged, scored = both_differences(*both_scores(groups))
    return np.asarray((np.sign(gold) * judged)[scored & (gold != 0)])


def summary(groups: Sequence[JudgedGroup], loss: float) -> dict[str, float]:
    """The numbers of an evaluation by name, for trackers and the choice of a checkpoint; NaN for what is not defined.

    Accuracy counts pairs of different gold, a tie as wrong; intervals (`_low`, `_high`) are at 95 %, over groups.
    """
    margins = pair_margins(groups)
    return {
        "eval_loss": loss,
        **_with_bounds("eval_pair_accuracy", score_ranking(groups).accuracy),
        **_with_bounds("eval_correlation", correlation(groups)),
        "eval_margin": float(margins.mean()) if len(margins) else math.nan,
    }


def details(groups: Sequence[JudgedGroup]) -> dict[str, Any]:
    """Details for metrics.jsonl beside the summary: the histogram of margins, and every language pair by itself.

    `eval_margins` counts the pairs between neighbouring `edges`, the first and the last count being those beyond.
    """
    edges = [-math.inf, *MARGIN_EDGES, math.inf]
    counts, _ = np.histogram(pair_margins(groups), bins=edges)
    of_pairs = {name: _of_language_pair(members) for name, members in by_language_pair(groups).items() if name != ALL}
    return {
        "eval_margins": {"edges": list(MARGIN_EDGES), "counts": counts.tolist()},
        "eval_language_pairs": of_pairs,
    }


def _of_language_pair(groups: Sequence[JudgedGroup]) -> dict[str, Any]:
    ranking = score_ranking(groups)
    return {
        "groups": ranking.n_groups,
        "pairs": ranking.n_pairs,
        "pair_accuracy": _as_list(ranking.accuracy),
        "correlation": _as_list(correlation(groups)),
    }


def console_line(n_groups: int, metrics: dict[str, float]) -> str:
    """An evaluation in a line."""
    parts = [
        f"{name} {metrics[key]:.3f} [{metrics[f'{key}_low']:.3f}, {metrics[f'{key}_high']:.3f}]"
        for name, key in (("pairs in order", "eval_pair_accuracy"), ("correlation", "eval_correlation"))
    ]
    return f"{n_groups} held-out groups: {', '.join(parts)}, loss {metrics['eval_loss']:.4g}"


def _with_bounds(name: str, interval: Interval | None) -> dict[str, float]:
    mean, low, high = _as_list(interval) or [math.nan] * 3
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _as_list(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.mean, interval.low, interval.high]


class RewardModelTrainer(SupervisedTrainer, Trainer):
    """Trains a `RewardModel` on groups. `head` says what head the model has; checkpoints record it."""

    def __init__(
        self, *, head: dict[str, Any], config: RewardModelConfig, groups: Sequence[GoldGroup], **kwargs: Any
    ) -> None:
        super().__init__(
            train_dataset=range(len(groups)),  # a batch is laid out when it is trained on
            data_collator=lambda numbers: {"numbers": paddle.to_tensor(numbers)},
            shuffle=config.dataloader_shuffle,
            **kwargs,
        )
        self.config, self.groups, self.head = config, groups, head

    def marker_state(self) -> dict[str, Any]:
        """The head that a checkpoint fits."""
        return {"head": self.head}

    def create_optimizer(self, lr_scheduler: Any = None) -> Any:
        """Set up the optimizer; the backbone's weights follow the schedule at their own learning rate."""
        rate = self.config.backbone_learning_rate
        if self.optimizer is None and rate:  # with 0 it is frozen
            for parameter in self.model.backbone.parameters():
                parameter.optimize_attr["learning_rate"] = rate / self.config.learning_rate
        return super().create_optimizer(lr_scheduler)

    def _prepare_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The groups of a batch of numbers."""
        return {"groups": [self.groups[number] for number in inputs["numbers"].tolist()]}

    def count(self, inputs: Mapping[str, Any]) -> Counts:
        """Pairs of different gold, and candidates."""
        return _count(self._prepare_inputs(inputs)["groups"])

    def outputs(self, model: Any, inputs: Mapping[str, Any]) -> paddle.Tensor:
        """Scores of the candidates, [R]."""
        scores_R: paddle.Tensor = model(**self.model.collate([group.candidates for group in inputs["groups"]]))
        return scores_R

    def loss_share(self, outputs: paddle.Tensor, inputs: Mapping[str, Any], denominators: Counts) -> paddle.Tensor:
        """These groups' part of the loss of all groups that `denominators` count; see `group_loss`."""
        groups, weight = inputs["groups"], self.config.squared_weight
        if weight is None:  # how much better a pair's winner is, is not known
            weight = 0.2 if self.config.reward_model == "ranker" and not groups[0].is_pair else 0.0
        return group_loss(outputs, [group.gold for group in groups], denominators, squared_weight=weight)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Score the held-out groups, which are divided among the ranks; see `held_out`. A collective."""
        ranks = DataRanks.of(self.args)
        own, loss = self._judge(ranks.share_of(self.held_out))
        judged = ranks.gather_shares(own)
        metrics = summary(judged, sum(ranks.gather(loss)))
        self.record_evaluation(metrics, console_line(len(judged), metrics), details(judged))
        return metrics

    @paddle.no_grad()
    def _judge(self, groups: Sequence[GoldGroup]) -> tuple[list[JudgedGroup], float]:
        """The groups with their scores, and their share of the loss of all held-out groups.

        Batches are of groups that are about as long.
        """
        size = self.args.per_device_eval_batch_size
        order = sorted(range(len(groups)), key=lambda index: _n_tokens(groups[index]))
        judged: dict[int, JudgedGroup] = {}
        denominators, loss = _count(self.held_out), 0.0
        self.model.eval()
        for start in range(0, len(order), size):
            batch = [groups[index] for index in order[start : start + size]]
            with self.autocast_smart_context_manager():
                scores_R = self.outputs(self.model, {"groups": batch}).astype("float32")
            loss += float(self.loss_share(scores_R, {"groups": batch}, denominators))
            ends = np.cumsum([len(group.gold) for group in batch])[:-1]
            for index, group, scores in zip(order[start:], batch, np.split(scores_R.numpy(), ends), strict=False):
                judged[index] = JudgedGroup(group.language_pair, group.gold, scores.tolist())
        self.model.train()
        return [judged[index] for index in range(len(groups))], loss


def _count(groups: Sequence[GoldGroup]) -> Counts:
    return count_pairs([group.gold for group in groups])


def _n_tokens(group: GoldGroup) -> int:
    return len(group.candidates.prompt_ids) + sum(map(len, group.candidates.responses))
