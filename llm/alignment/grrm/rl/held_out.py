"""Evaluation during training: greedy and sampled translations of held-out prompts, judged like a rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from paddlenlp.trainer import TrainerCallback, TrainingArguments

from grrm.data.dataset import PromptItem
from grrm.engine.api import SamplingParams
from grrm.errors import UserError
from grrm.parallel.collective import run_together
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.reward_stage import Rewarder
from grrm.rl.rollout import RolledGroup, RolloutWorker


@dataclass(slots=True)
class HeldOut:
    """Held-out prompts and what is needed to translate and judge them.

    Each prompt's group is one greedy translation followed by `samples` sampled ones. The prompts are divided among the
    ranks; the same samples come out at every evaluation.
    """

    prompts: Sequence[PromptItem]
    worker: RolloutWorker
    rewarder: Rewarder
    samples: int
    ranks: DataRanks

    def evaluate(self) -> dict[str, float]:
        """Mean reward of greedy (`eval_reward_greedy`) and sampled (`eval_reward`) translations, and their failures.

        Without samples `eval_reward` is the greedy one. NaN where nothing was scored. A collective.
        """
        mine = range(self.ranks.rank, len(self.prompts), self.ranks.size)
        items = [self.prompts[i] for i in mine]
        groups = self._translate(items, list(mine))
        expected = (UserError, RewardFailure)
        stage = "judging held-out translations"
        run_together(stage, lambda: self._judge(groups), self.ranks, expected, RewardFailure)
        rewards = [rolled.shaped.rewards for rolled in groups if rolled.shaped is not None]
        everything = [row for part in self.ranks.gather(rewards) for row in part]
        greedy = [row[0] for row in everything]
        sampled = [value for row in everything for value in row[1:]] if self.samples else greedy
        return {
            "eval_reward": _mean(sampled),
            "eval_reward_greedy": _mean(greedy),
            "eval_frac_unrewarded": sum(value is None for value in sampled) / max(len(sampled), 1),
        }

    def _judge(self, groups: list[RolledGroup]) -> None:
        if groups:
            self.rewarder.reward(groups)

    def _translate(self, items: list[PromptItem], positions: list[int]) -> list[RolledGroup]:
        if not items:
            return []
        greedy = self._worker(1, temperature=0.0).roll_out(items, positions, 0)
        if not self.samples:
            return greedy
        sampled = self._worker(self.samples, temperature=1.0).roll_out(items, positions, 0)
        return [_joined(one, many) for one, many in zip(greedy, sampled, strict=True)]

    def _worker(self, n: int, temperature: float) -> RolloutWorker:
        sampling: SamplingParams = replace(self.worker.sampling, temperature=temperature, top_p=1.0)
        return replace(self.worker, rollout_n=n, sampling=sampling)


def _joined(greedy: RolledGroup, sampled: RolledGroup) -> RolledGroup:
    """One group of the greedy candidate and the sampled ones, ids made distinct."""
    first = replace(greedy.group.candidates[0], candidate_id="greedy")
    group = replace(greedy.group, candidates=(first, *sampled.group.candidates))
    return replace(sampled, group=group, token_ids=greedy.token_ids + sampled.token_ids)


def _mean(values: Sequence[float | None]) -> float:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else float("nan")


class StopWhenNoBetter(TrainerCallback):
    """Stops training after `patience` evaluations in a row without `eval_reward` improving by more than `threshold`."""

    def __init__(self, patience: int, threshold: float) -> None:
        self.patience, self.threshold = patience, threshold
        self.best = float("-inf")
        self.misses = 0

    def on_evaluate(
        self, args: TrainingArguments, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
    ) -> None:
        """Compare the latest evaluation with the best one."""
        reward = metrics["eval_reward"]
        if reward > self.best + self.threshold:
            self.best, self.misses = reward, 0
            return
        self.misses += 1
        if self.is_done:
            control.should_training_stop = True

    @property
    def is_done(self) -> bool:
        """True once training was to stop."""
        return self.misses >= self.patience

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep, as JSON."""
        return {"best": self.best if math.isfinite(self.best) else None, "misses": self.misses}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on where `state` was taken; None, from a run that did not stop early, changes nothing."""
        if state is not None:
            self.best = float("-inf") if state["best"] is None else float(state["best"])
            self.misses = int(state["misses"])
