"""The RL trainer: PaddleNLP's Trainer with rollout, judging and advantages in input preparation.

Optimizer, sharding, gradient accumulation, mixed precision, checkpoints, callbacks and trackers are PaddleNLP's. The
trainer is independent of the advantage rule and the policy loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import paddle

from grrm.errors import UserError
from grrm.models.chunked_loss import chunked_loss
from grrm.paddlenlp_api.training import Trainer, TrainingArguments
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.batch import BatchObjective, make_batch
from grrm.rl.dumped_records import aborted_records, group_records
from grrm.rl.experience_maker import Experience, ExperienceMaker
from grrm.rl.held_out import EvaluateAtEnds, HeldOut, StopWhenNoBetter
from grrm.rl.metrics import StepMetrics, rollout_metrics
from grrm.rl.records import Row
from grrm.rl.rollout_ahead import write_samples
from grrm.rl.verdict import write_evaluation
from grrm.tracking.run_record import RunRecord
from grrm.training.callbacks import DecaysToFloor, OptimizesTrainable, StopsAtDivergence
from grrm.training.checkpoints import MarksCheckpoints
from grrm.training.pipeline_steps import PipelineSteps
from grrm.training.records import MetersTokens


@dataclass(frozen=True, slots=True)
class StepIndex:
    """Micro-batch `micro` of update `update` of rollout `rollout`, all from 0."""

    rollout: int
    update: int
    micro: int


@dataclass(frozen=True, slots=True)
class StepIndexLoader:
    """Endless step indices in training order.

    PaddleNLP's Trainer skips finished micro-batches of a resumed run by iterating over them. Indices make this free:
    the rollouts they refer to are only generated when they are prepared for training.
    """

    updates_per_rollout: int
    micro_batches_per_update: int

    def __iter__(self) -> Iterator[StepIndex]:
        rollout = 0
        while True:
            for update in range(self.updates_per_rollout):
                for micro in range(self.micro_batches_per_update):
                    yield StepIndex(rollout, update, micro)
            rollout += 1


class GroupPolicyTrainer(
    MarksCheckpoints, OptimizesTrainable, StopsAtDivergence, DecaysToFloor, MetersTokens, PipelineSteps, Trainer
):
    """Trains a policy on `Experience`s. `record` writes metrics, dumps and the console."""

    def __init__(
        self,
        *,
        model: Any,
        args: TrainingArguments,
        maker: ExperienceMaker,
        record: RunRecord,
        tokenizer: Any,
        held_out: HeldOut | None = None,
        stopper: StopWhenNoBetter | None = None,
    ) -> None:
        callbacks = [] if stopper is None else [stopper]
        prompts: Any = maker.sampler.prompts
        super().__init__(model=model, args=args, train_dataset=prompts, tokenizer=tokenizer, callbacks=callbacks)
        self.config, self.plan, self.ranks = maker.sampler.config, maker.sampler.plan, maker.sampler.ranks
        self.min_learning_rate, self.pad_id = self.config.min_learning_rate, tokenizer.pad_token_id
        self.maker, self.record, self.held_out, self.stopper = maker, record, held_out, stopper
        in_stages = self.config.pipeline_parallel_degree > 1
        self.step_metrics = StepMetrics(self.ranks, self.plan.micro_batches_per_update, in_stages)
        if held_out is not None:
            self.add_callback(EvaluateAtEnds(self.evaluate, first=self.config.eval_on_start))
        self._experience: Experience | None = None
        self._rollout = -1
        self._cache_is_reported = False
        self._update_started = self._seconds_update = 0.0
        self._timed_step = 0

    def get_train_dataloader(self) -> StepIndexLoader:
        """Step indices instead of data: see `StepIndexLoader`."""
        return StepIndexLoader(self.plan.updates_per_rollout, self.plan.micro_batches_per_update)

    def training_step(self, model: Any, inputs: StepIndex, step_control: int = 0) -> Any:
        """As Trainer's; a no-op for empty micro-batches, which a token budget may leave."""
        if self._rows(inputs):
            return super().training_step(model, inputs, step_control)
        self.step_metrics.add({}, (0.0, 0.0, 0.0))
        return paddle.zeros([])

    def _prepare_inputs(self, inputs: StepIndex) -> dict[str, Any]:
        """Turn a step index into tensors."""
        assert self._experience is not None
        batch = make_batch(self._rows(inputs), self.pad_id, self.config.pack_tokens)
        return {"batch": batch, "denominators": self._experience.denominators[inputs.update]}

    def _rows(self, inputs: StepIndex) -> list[Row]:
        """The rows of a step index; generates a new rollout if one begins here."""
        if inputs.rollout != self._rollout:
            with self.untimed():
                step = self.state.global_step + 1
                self._experience = experience = self._make(step)
                self._rollout = inputs.rollout
                self.step_metrics.set(rollout_metrics(experience) | self._cache_metrics())
                self.record.rollout(step, partial(group_records, experience, step, bool(self.config.kl_coeff)))
                is_last = (inputs.rollout + 1) * self.plan.updates_per_rollout >= self.args.max_steps
                if self.config.rollout_ahead and not is_last:
                    self.maker.start_next(self.state.global_step)
            self._update_started = time.perf_counter()
        assert self._experience is not None
        return self._experience.micro_batches[inputs.update][inputs.micro]

    def _make(self, step: int) -> Experience:
        """The next rollout; if it fails, the groups generated so far are dumped."""
        try:
            return self.maker.make(self.state.global_step, self.autocast_smart_context_manager)
        except RewardFailure:
            self.record.rollout(step, partial(aborted_records, self.maker.generated, self.maker.unscored, step))
            raise

    def _cache_metrics(self) -> dict[str, float]:
        """Maximum concurrent and preempted sequences of this rank's engine; logged as a line the first time."""
        use = self.maker.sampler.worker.engine.cache_use
        if use is None:
            return {}
        if not self._cache_is_reported:
            self.record.say(f"rollouts: {use}")
            self._cache_is_reported = True
        return {"rollout_running_max": float(use.max_running), "rollout_set_aside": float(use.n_preempted)}

    def model_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The packed rows."""
        return dict(inputs["batch"].tokens.model_inputs())

    def compute_loss(self, model: Any, inputs: dict[str, Any]) -> paddle.Tensor:
        """This micro-batch's part of the mini-batch loss, scaled so that Trainer's averages sum the parts.

        Trainer divides by the accumulation steps and averages gradients over data ranks, while the parts are already
        normalised by counts over all micro-batches and ranks; the factor undoes both means.
        """
        batch = inputs["batch"]
        objective = BatchObjective(batch, self.config, inputs["denominators"])
        loss = chunked_loss(
            model(**batch.tokens.model_inputs()).hidden_NH,
            self.model.lm_head,
            batch.tokens,
            objective,
            temperature=self.config.temperature,
            entropy_gradient=self.config.entropy_coeff != 0,
        )
        self.step_metrics.add(*objective.metrics())
        return loss * (self.plan.micro_batches_per_update * self.ranks.size)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Translate and judge the held-out prompts; metrics go to trackers and metrics.jsonl, lines to the console."""
        assert self.held_out is not None
        self.maker.settle()  # the judge is asked from one thread at a time
        evaluation = self.held_out.evaluate(self.state.global_step)
        metrics = evaluation.metrics
        self.record.evaluation(self.state.global_step, metrics, evaluation.lines)
        if self.is_world_process_zero():
            write_evaluation(self.args.output_dir, self.state.global_step, evaluation.prompts)
        self.log(dict(metrics))
        if self.stopper is not None:
            self.stopper.is_off = evaluation.is_relative
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if self.stopper is not None and self.stopper.is_done and self.state.global_step < self.args.max_steps:
            self.record.say(f"early_stopping ends the run at step {self.state.global_step}: {self.stopper.reason}")
        return metrics

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Add the rollout's and the loss's metrics to Trainer's logs, and write them to our own record."""
        if "loss" in logs:
            logs.update(self.step_metrics.collect() | self.throughput())
            logs["seconds_update"] = self._seconds_update
            self.record.metrics(self.state.global_step, logs)
            self._check_gap(logs["logprob_gap_mean"])
        super().log(logs, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """As the base's, called after every optimizer step and at the end; its time belongs to no update."""
        if self._timed_step != self.state.global_step:
            self._timed_step, self._seconds_update = self.state.global_step, time.perf_counter() - self._update_started
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self._update_started = time.perf_counter()

    def _check_gap(self, gap: float) -> None:
        """Stop, on every rank, when the gap between engine and trainer log-probs exceeds the limit."""
        limit = self.config.logprob_gap_limit
        if limit is not None and gap > limit:
            raise UserError(
                f"engine and trainer log-probabilities differ by {gap:.3g} per token on average at step "
                f"{self.state.global_step}, more than logprob_gap_limit {limit:g}: use a more precise rollout engine, "
                "or see whether a rollout server has restarted since its last weight update"
            )

    def save_beside(self, checkpoint: Path) -> None:
        """Save the samples of the next step, if they have been generated already."""
        if self.config.rollout_ahead and (groups := self.maker.sampled_ahead()) and self.is_world_process_zero():
            write_samples(checkpoint, groups)

    def marker_state(self) -> dict[str, Any]:
        """Position in the prompts, and the state of evaluations, of early stopping and of the reward hacking alarm."""
        alarm = None if self.held_out is None else self.held_out.alarm
        return {
            **self.maker.state(),
            "stopping": None if self.stopper is None else self.stopper.state(),
            "alarm": None if alarm is None else alarm.state(),
            "is_relative": self.held_out is not None and self.held_out.is_relative,
        }
