"""A run of any stage, from the arguments to its end, and what SFT, reward models and DPO share beside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from grrm.config import RewardModelConfig, SFTConfig
from grrm.config.batch_plan import accumulated_micro_batches, supervised_steps
from grrm.config.stage_config import DPOConfig, RLConfig
from grrm.config.training_arguments import StageArguments, training_arguments
from grrm.data.held_out import held_out_split
from grrm.errors import UserError
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.gathered_weights import save_policy
from grrm.models.lora import check_same_adapters, with_adapters
from grrm.models.policy import freeze_layers
from grrm.models.tokenizer import load_tokenizer
from grrm.models.trained_with import (
    Stage,
    TrainedWith,
    TrainingFile,
    read_trained_with,
    trained_with_prompts,
    training_file,
)
from grrm.parallel.gloo import support_gloo
from grrm.parallel.lifeline import watch_peers
from grrm.startup import freeze_gc
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.callbacks import failures_in_log, quiet_paddlenlp
from grrm.training.checkpoints import (
    MARKER,
    check_resumable,
    claim_output_dir,
    hold_output_dir,
    is_finished_run,
    load_trained,
    mark_finished,
    read_marker,
    resume_point,
    save_final,
    start_over,
)
from grrm.training.model_setup import check_same_tokens, weights_dtype

Item = TypeVar("Item")
SupervisedConfig = SFTConfig | RewardModelConfig | DPOConfig


class StageRun:
    """This process's part of a run: its arguments and tokenizer, the checkpoint it goes on at, and its end.

    Opening one joins the other processes and claims `output_dir`. Raises UserError as `training_arguments`,
    `claim_output_dir` and `load_tokenizer`.
    """

    def __init__(self, config: RLConfig | SupervisedConfig, tokenizer: str) -> None:
        support_gloo()
        self._config = config
        self.args: StageArguments = training_arguments(config)
        use_cpu_layers(self.args.precision)
        self._peers = watch_peers(self.args.world_size)
        claim_output_dir(self.args.output_dir, self.args.world_size)
        if self.args.process_index == 0:
            hold_output_dir(self.args.output_dir)
        quiet_paddlenlp(self.args.output_dir, self.args.process_index == 0)
        self.tokenizer = load_tokenizer(tokenizer)
        self.checkpoint: Path | None = None

    def is_over(self, further: Callable[[], Sequence[str]] = tuple) -> bool:
        """True where the run is finished and its model saved, which is told with `further` lines: nothing is left."""
        if not is_finished_run(self.args, self._config, further):
            return False
        self._peers.leave()
        return True

    def find_checkpoint(self) -> dict[str, Any]:
        """Look for the checkpoint to go on at; returns the state in its marker, that of step 0 without one."""
        self.checkpoint = resume_point(self.args)
        if self.checkpoint and self.args.process_index == 0:
            print(f"going on from '{self.checkpoint}'", file=sys.stderr, flush=True)
        return read_marker(self.checkpoint) if self.checkpoint else {"step": 0}

    def check_same_rows(self, own: TrainingFile) -> None:
        """Raises UserError where what `output_dir` has of an earlier run is not of this stage, or of other rows.

        Nothing is checked where the run starts over, or of runs that have kept no record of their files.
        """
        folder = Path(self.args.output_dir)
        is_finished = not self.args.overwrite_output_dir and (folder / MARKER).is_file()
        earlier = resume_point(self.args) or (folder if is_finished else None)
        before = read_trained_with(earlier).data[-1:] if earlier else ()
        remedy = "name another output_dir, or set overwrite_output_dir to start over"
        if self.args.resume_from_checkpoint:
            remedy = "remove resume_from_checkpoint, or give it as the model to start from its weights"
        for file in before:
            rows, ours = (f"{of.rows} rows of {of.file} ({of.sha256[:8]})" for of in (file, own))
            if file.stage != own.stage:
                rows, ours = (f"the stage {of.stage}" for of in (file, own))
            if (file.stage, file.sha256, file.rows) != (own.stage, own.sha256, own.rows):  # a copy of the file will do
                raise UserError(f"'{earlier}' is of a run on {rows}, and this one is on {ours}: {remedy}")

    def check_checkpoint(self, state: dict[str, Any], *, is_trained: bool, updates_per_rollout: int = 1) -> None:
        """Raises UserError for a checkpoint that these arguments cannot go on with, unless nothing is left to train."""
        if self.checkpoint and not is_trained:
            check_resumable(self.args, self.checkpoint, state, updates_per_rollout)
        check_same_adapters(self.checkpoint, self._config)

    def trainable(self, model: Any, *, has_head: bool = False) -> Any:
        """`model` with the adapters that the configuration asks for, if any."""
        return with_adapters(model, self._config, weights_dtype(self.args), self._config.seed, has_head=has_head)

    def train_rest(self, trainer: Any, *, is_trained: bool) -> None:
        """Train what is left to train; what is trained already is loaded."""
        freeze_gc()
        if self.checkpoint and is_trained:
            load_trained(trainer, self.checkpoint)
            return
        with failures_in_log():
            trainer.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)

    def end(self, trainer: Any) -> None:
        """Mark the run as finished, whose model is saved, and let the other processes go."""
        mark_finished(trainer, self._config)
        self._peers.leave()


class SupervisedRun(StageRun):
    """A run of SFT, of a reward model or of DPO, and the step it goes on at; `file` is known once it is resumed."""

    file: TrainingFile

    def __init__(self, config: SupervisedConfig) -> None:
        tokenizer, model = config.tokenizer_name_or_path, config.model_name_or_path
        super().__init__(config, tokenizer or model or "")
        if tokenizer and model and tokenizer != model:
            check_same_tokens(self.tokenizer, model)
        self._base, self._done = model, 0
        self._head: dict[str, Any] | None = None

    def resume(self, stage: Stage, n_rows: int) -> bool:
        """Count the steps of the stage's `n_rows` training rows, and find the checkpoint to go on at, if there is one.

        False, once it has been told, where the run is finished and its model saved.

        Raises UserError for too few rows, and a run or a checkpoint that these arguments cannot go on with.
        """
        self.file = training_file(stage, self._config.train_datasets, n_rows)
        self.check_same_rows(self.file)
        n_ranks = self.args.dataset_world_size
        self.args.max_steps = supervised_steps(self.args, n_ranks, n_rows)
        # As Trainer would only once it trains, after the checkpoint has been compared with these arguments.
        self.args.gradient_accumulation_steps = accumulated_micro_batches(self.args, n_ranks, n_rows)
        if self.is_over():
            return False
        state = self.find_checkpoint()
        self._done, self._head = state["step"], state.get("head")
        self.check_checkpoint(state, is_trained=self._is_trained)
        self._check_same_seed(state.get("seed"))
        return True

    def _check_same_seed(self, before: int | None) -> None:
        """Raises UserError for rows in another order than those before the checkpoint, whose seed is `before`."""
        if before not in (None, self.args.seed) and not self._is_trained:
            raise UserError(
                f"checkpoint '{self.checkpoint}' is of a run with seed {before}, and this one has {self.args.seed}, "
                "which would skip or repeat rows: set it back, set overwrite_output_dir to start over, or name another "
                "output_dir"
            )

    def check_same_head(self, head: dict[str, Any]) -> None:
        """Raises UserError where the checkpoint to go on at is of a model with another head."""
        other = [name for name in head if self._head is not None and self._head.get(name) != head[name]]
        if other:
            before, now = (", ".join(f"{name} {of.get(name)}" for name in other) for of in (self._head or {}, head))
            raise UserError(
                f"checkpoint '{self.checkpoint}' is of a model with {before}, not {now}: set it back, set "
                "overwrite_output_dir to start over, or name another output_dir"
            )

    def trained_with(self, prompts: Iterable[tuple[str, bool]]) -> TrainedWith:
        """The training record of the model: `prompts` as in `trained_with_prompts` are those of its rows."""
        own = trained_with_prompts(prompts).model_copy(update={"data": (self.file,)})
        return own.after(read_trained_with(self._base)) if self._base else own

    def trainer_arguments(self, description: str) -> dict[str, Any]:
        """Arguments of every trainer; the first process logs metrics and shows progress."""
        start_over(self.args, self.checkpoint)
        is_first = self.args.process_index == 0
        progress = StepProgress(self.args.max_steps, initial=self._done, description=description) if is_first else None
        return {
            "args": self.args,
            "tokenizer": self.tokenizer,
            "metrics_log": MetricsLog(Path(self.args.output_dir), self._done + 1) if is_first else None,
            "progress": progress,
        }

    def train(self, trainer: Any, save_model: Callable[[Any, str, Any], None] = save_policy) -> None:
        """Train what is left to train, and leave the model and its tokenizer in `output_dir`."""
        self.train_rest(trainer, is_trained=self._is_trained)
        if trainer.progress is not None:
            trainer.progress.close()
        save_final(trainer, self.args.output_dir, save_model, trainer.trained_with)
        self.end(trainer)

    @property
    def _is_trained(self) -> bool:
        return self._done >= self.args.max_steps


def prepare_policy(model: Any, config: RLConfig | SFTConfig | DPOConfig) -> None:
    """Freeze the layers that `config` says, and compute activations again in the backward pass where it asks to."""
    freeze_layers(model, config.frozen_layers)
    if config.recompute:
        model.recompute_enable()


def read_split(
    config: SupervisedConfig, read: Callable[[str], Sequence[Item]], prompt_of: Callable[[Item], Hashable]
) -> tuple[Sequence[Item], Sequence[Item]]:
    """(training, held-out) rows, `read` from the files of `config`; a split of one file shares no prompt.

    Raises UserError as `read`, and for a split that leaves nothing to train on.
    """
    rows = read(config.train_datasets)
    if config.eval_datasets:
        return rows, read(config.eval_datasets)
    if not config.val_size:
        return rows, ()
    return held_out_split(rows, prompt_of, config.val_size, config.seed)
