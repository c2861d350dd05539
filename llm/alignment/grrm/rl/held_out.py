"""Evaluation during training: greedy and sampled translations of held-out prompts, judged like a rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grrm.data.dataset import PromptItem
from grrm.engine.api import SamplingParams
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import TranslatedPrompt, compares_only, console_line, held_out_scores
from grrm.evaluation.reward_alarm import RewardAlarm
from grrm.evaluation.verdict import ONLY_COMPARED
from grrm.paddlenlp_api.training import TrainerCallback, TrainingArguments
from grrm.parallel.data_ranks import DataRanks, run_together
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.records import Rolled, Scored
from grrm.rl.reward_stage import Rewarder, reward
from grrm.rl.rollout import PromptBatch, RolloutWorker


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding of held-out prompts: `samples` times at `temperature` and `top_p`, and greedily as well."""

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = True


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation: metrics, lines for the console, and the prompts with their translations.

    Where `is_relative`, `eval_reward` cannot be compared with that of another evaluation.
    """

    metrics: dict[str, float]
    lines: list[str]
    prompts: list[TranslatedPrompt]
    is_relative: bool = False


@dataclass(slots=True)
class HeldOut:
    """Held-out prompts and what is needed to translate and judge them.

    Each prompt's group is one greedy translation, if `decoding` asks for it, followed by the sampled ones. The prompts
    are divided among the ranks; the same samples come out at every evaluation. `has_references` is False where the
    tasks' references are no translations. `is_relative` from the evaluation on that showed that rewards only compare.
    """

    prompts: Sequence[PromptItem]
    worker: RolloutWorker
    rewarder: Rewarder
    decoding: Decoding
    ranks: DataRanks
    has_references: bool = False
    alarm: RewardAlarm | None = None
    is_relative: bool = False

    def evaluate(self, step: int) -> Evaluation:
        """The `held_out_scores` after step `step`, and the alarm's state; independent of the number of ranks.

        A collective.
        """
        prompts = self._translated(step)
        has_greedy = self.decoding.greedy
        metrics = held_out_scores(prompts, has_greedy=has_greedy, has_references=self.has_references)
        lines = [console_line(len(prompts), metrics)]
        if not self.is_relative and compares_only(prompts):
            self.is_relative = True
            lines.append(
                f"{ONLY_COMPARED}: eval_reward says nothing about progress, early_stopping and the reward hacking "
                "alarm are off; choose checkpoints by chrF (metric_for_best_model: chrf_greedy)"
            )
        if self.alarm is not None:
            alarm_metrics, sentence = self.alarm.check(step, metrics, prompts, self.is_relative)
            metrics.update(alarm_metrics)
            lines += [] if sentence is None else [sentence]
        return Evaluation(metrics, lines, prompts, self.is_relative)

    def _translated(self, step: int) -> list[TranslatedPrompt]:
        """Every prompt, translated and judged, in order, on every rank."""
        positions = self.ranks.share_of(range(len(self.prompts)))
        batch = PromptBatch(self.ranks.share_of(self.prompts), positions, generation=0, step=step)
        stage = "sampling held-out translations"
        rolled = run_together(stage, lambda: self._translate(batch), self.ranks, (FloatingPointError, UserError))
        expected = (UserError, RewardFailure)
        stage = "judging held-out translations"
        groups = run_together(stage, lambda: self._judged(rolled), self.ranks, expected, RewardFailure)
        return self.ranks.gather_shares([_translated_prompt(scored) for scored in groups])

    def _judged(self, rolled: list[Rolled]) -> list[Scored]:
        return reward(self.rewarder, rolled) if rolled else []

    def _translate(self, batch: PromptBatch) -> list[Rolled]:
        decoding, ways = self.decoding, []
        if decoding.greedy:
            ways.append(self._worker(1, temperature=0.0, top_p=1.0))
        if decoding.samples:
            ways.append(self._worker(decoding.samples, temperature=decoding.temperature, top_p=decoding.top_p))
        rolled = [worker.roll_out(batch) for worker in ways]
        return rolled[0] if len(rolled) == 1 else [_joined(*pair) for pair in zip(*rolled, strict=True)]

    def _worker(self, n: int, temperature: float, top_p: float) -> RolloutWorker:
        training: SamplingParams = self.worker.sampling
        sampling = replace(training, temperature=temperature, top_p=top_p, logprobs=False)
        return replace(self.worker, rollout_n=n, sampling=sampling)


def _joined(greedy: Rolled, sampled: Rolled) -> Rolled:
    """One group of the greedy candidate and the sampled ones, ids made distinct."""
    first = replace(greedy.group.candidates[0], candidate_id="greedy")
    group = replace(greedy.group, candidates=(first, *sampled.group.candidates))
    reasons = greedy.finish_reasons + sampled.finish_reasons
    return replace(sampled, group=group, token_ids=greedy.token_ids + sampled.token_ids, finish_reasons=reasons)


def _translated_prompt(scored: Scored) -> TranslatedPrompt:
    """A judged group reduced to its texts and numbers."""
    candidates = scored.rolled.group.candidates
    return TranslatedPrompt(
        task=scored.rolled.group.task,
        translations=tuple(candidate.translation for candidate in candidates),
        rewards=tuple(scored.shaped.rewards),
        lengths=tuple(len(tokens) for tokens in scored.rolled.token_ids),
        responses=tuple(candidate.response for candidate in candidates),
    )


class EvaluateAtEnds(TrainerCallback):
    """Evaluates after the last step and, with `first`, before the first step of a run that is not resumed."""

    def __init__(self, evaluate: Callable[[], object], first: bool) -> None:
        self.evaluate, self.first = evaluate, first

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step."""
        if self.first and state.global_step == 0:
            self.evaluate()

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for an evaluation at the end."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True


class StopWhenNoBetter(TrainerCallback):
    """Stops training after `patience` evaluations in a row without `eval_reward` improving by more than `threshold`.

    It does not while it `is_off`. An evaluation of which nothing was scored, as while a judge is away, is passed over.
    """

    def __init__(self, patience: int, threshold: float) -> None:
        self.patience, self.threshold = patience, threshold
        self.best = float("-inf")
        self.misses = 0
        self.is_off = False

    def on_evaluate(
        self, args: TrainingArguments, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
    ) -> None:
        """Compare the latest evaluation with the best one."""
        reward = metrics["eval_reward"]
        if self.is_off or math.isnan(reward):
            return
        if reward > self.best + self.threshold:
            self.best, self.misses = reward, 0
            return
        self.misses += 1
        if self.is_done:
            control.should_training_stop = True

    @property
    def is_done(self) -> bool:
        """True once early stopping has triggered."""
        return not self.is_off and self.misses >= self.patience

    @property
    def reason(self) -> str:
        """State the best reward and the number of evaluations since, for the console."""
        by = f" by more than {self.threshold:g}" if self.threshold else ""
        return f"eval_reward has not risen above {self.best:.3f}{by} in the last {self.misses} evaluations"

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON."""
        return {"best": self.best if math.isfinite(self.best) else None, "misses": self.misses}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Restore `state`; None, from a run without early stopping, changes nothing."""
        if state is not None:
            self.best = float("-inf") if state["best"] is None else float(state["best"])
            self.misses = int(state["misses"])
