"""Additions to PaddleNLP's trainers: a floor of the learning rate, no frozen weights to optimize, a quiet console."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddle.optimizer.lr import LambdaDecay

from grrm.errors import UserError
from grrm.paddlenlp_api.files import logger
from grrm.paddlenlp_api.training import IntervalStrategy, TrainerCallback, TrainingArguments, get_timers
from grrm.rewards.failure_policy import RewardFailure


def floored_cosine(step: int, warmup: int, total: int, floor: float, num_cycles: float = 0.5) -> float:
    """The factor on the learning rate in `step` (from 0) of `total`: up from 0 over `warmup` steps, down to `floor`.

    floor + (1 - floor) * (1 + cos(2 pi num_cycles p)) / 2 with p from 0 to 1 after the warmup; num_cycles 0.5 is half
    a wave. With floor 0 it is PaddleNLP's cosine schedule, with floor 0.2 that of GRRM's recipe for its judge.
    """
    if step < warmup:
        return step / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(2 * math.pi * num_cycles * progress))


class DecaysToFloor:
    """Mixin over PaddleNLP's Trainer that honours `min_learning_rate`; without it the schedules are PaddleNLP's."""

    min_learning_rate: float | None = None

    def create_scheduler(self, num_training_steps: int) -> Any:
        """Set up the schedule of a run of `num_training_steps` optimizer steps."""
        trainer: Any = self
        args = trainer.args
        if self.min_learning_rate is None or trainer.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps)  # type: ignore[misc]
        warmup = args.warmup_steps if args.warmup_steps > 0 else int(args.warmup_ratio * num_training_steps)
        floor = self.min_learning_rate / args.learning_rate if args.learning_rate else 0.0
        trainer.lr_scheduler = LambdaDecay(
            args.learning_rate, lambda step: floored_cosine(step, warmup, num_training_steps, floor, args.num_cycles)
        )
        return trainer.lr_scheduler


class OptimizesTrainable:
    """Mixin over PaddleNLP's Trainer, whose optimizer would hold frozen weights too.

    Sharding gives each of its weights a gradient, of zeros in float32 where there is none, and sends it in every step.
    A resumed run goes on at the rate of its own schedule, which may be longer than that of the run before.
    """

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        schedule = self.lr_scheduler  # type: ignore[attr-defined]
        schedule.step(schedule.last_epoch)  # the rate that was restored is that of the run before

    def create_optimizer(self, lr_scheduler: Any = None) -> Any:
        """Set up the optimizer of the weights that are trained."""
        optimizer = super().create_optimizer(lr_scheduler)  # type: ignore[misc]
        trained = [parameter for parameter in optimizer._parameter_list if not parameter.stop_gradient]
        optimizer._parameter_list = optimizer._param_groups = trained
        return optimizer


class StopsAtDivergence:
    """Mixin over PaddleNLP's Trainer, which raises a ValueError with a traceback there."""

    def _check_loss_valid(self, loss: Any) -> None:
        """Called before every optimizer step with this rank's summed loss; the weights are still good then."""
        trainer: Any = self
        self.refuse_divergence("loss", float(loss), trainer.state.global_step + 1)

    @staticmethod
    def refuse_divergence(name: str, value: float, step: int) -> None:
        """Raises UserError for a number that is not finite."""
        if not math.isfinite(value):
            raise UserError(
                f"the {name} is {value} in step {step}: training has diverged, lower learning_rate or max_grad_norm "
                "and start again, it goes on from the last checkpoint"
            )


def of_best(metrics: Mapping[str, float] | None, name: str | None) -> Mapping[str, float] | None:
    """An evaluation's `metrics`; None where the one that chooses the best checkpoint, `name`, is undefined.

    Trainer takes the first evaluation as the best, and nothing compares as greater than NaN.
    """
    is_undefined = metrics and name and math.isnan(metrics[f"eval_{name.removeprefix('eval_')}"])
    return None if is_undefined else metrics


def best_checkpoint(recorded: str | None, output_dir: str | Path) -> str | None:
    """The best checkpoint, `recorded` where it was saved; in `output_dir` if the run was moved since, None if lost."""
    if recorded is None or Path(recorded).is_dir():
        return recorded
    moved = Path(output_dir) / Path(recorded).name
    return str(moved) if moved.is_dir() else None


class FindsBest(TrainerCallback):
    """Looks for the best checkpoint of a resumed run, whose state has the path at which it was saved."""

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Correct the path; without the checkpoint, the next evaluation that is saved is the best."""
        state.best_model_checkpoint = best_checkpoint(state.best_model_checkpoint, args.output_dir)


class LogLastStep(TrainerCallback):
    """Logs the last step although it is no multiple of `logging_steps`."""

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a log line at the end."""
        if state.global_step >= state.max_steps and args.logging_strategy == IntervalStrategy.STEPS:
            control.should_log = True

    def on_epoch_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for one where early stopping, which evaluates after the log, ends the run."""
        is_early = control.should_training_stop and state.global_step < state.max_steps
        if is_early and args.logging_strategy == IntervalStrategy.STEPS and state.global_step % args.logging_steps:
            control.should_log = True


class StopReadTimer(TrainerCallback):
    """Stops PaddleNLP's timer of reading, which it starts again for every batch that a resumed run skips."""

    def on_load_data_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the timer, if parts of a step are timed."""
        timers = get_timers()
        if timers is not None and (timer := timers("read-data")).started_:
            timer.stop()


CALLBACKS = (FindsBest, LogLastStep, StopReadTimer)  # of every stage

FILE_NAME = "trainer.log"


class _LogFile(logging.FileHandler):
    """A log file that goes on without a line for which the disk has no room: what must be saved fails by itself."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Print no traceback of an OSError; a message that cannot be formatted is told as ever."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def quiet_paddlenlp(folder: str | Path, is_first: bool) -> None:
    """Keep PaddleNLP's messages off the console unless they are warnings.

    The first rank adds what else is at least INFO to the end of `folder`/trainer.log; on the others it is dropped.
    Calling it again goes on with another folder.
    """
    logger.set_level("INFO" if is_first else "WARNING")
    logger.handler.setLevel(logging.WARNING)
    for handler in _log_files():
        logger.logger.removeHandler(handler)
        handler.close()
    if is_first:
        handler = _LogFile(Path(folder) / FILE_NAME, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.logger.addHandler(handler)


@contextmanager
def failures_in_log() -> Iterator[None]:
    """Write to the log file why the block was left early: the sentence, and the traceback of what has none."""
    try:
        yield
    except BaseException as error:
        has_sentence = isinstance(error, UserError | RewardFailure)
        record = logging.LogRecord(
            logger.logger.name,
            logging.ERROR,
            __file__,
            0,
            "%s",
            (error if has_sentence else type(error).__name__,),
            None if has_sentence else (type(error), error, error.__traceback__),
        )
        for handler in _log_files():
            handler.handle(record)
        raise


def _log_files() -> list[logging.FileHandler]:
    return [handler for handler in logger.logger.handlers if isinstance(handler, logging.FileHandler)]
