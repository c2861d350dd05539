"""Checkpoints that are whole: a marker is written last, and resuming looks for the marker."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grrm.config.stage_config import RLConfig, StageConfig
from grrm.data.atomic import write_json
from grrm.errors import UserError
from grrm.models.gathered_weights import Weights, gathered_weights, joined_stages, save_policy
from grrm.models.hub import saved_checkpoints
from grrm.models.lora import without_adapters
from grrm.models.trained_with import TrainedWith, write_trained_with
from grrm.models.weight_files import drop_other_weights
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.barrier import barrier
from grrm.parallel.data_ranks import gather_from_all
from grrm.training.callbacks import CALLBACKS, best_checkpoint, of_best
from grrm.training.topology import AnyLayoutHandler, Topology, check_topology

MARKER = "grrm_state.json"
_LOCK_WAIT_S = 10.0  # for the processes of a run that was killed
_UNFINISHED = ".saving-"  # begins the names of folders


def claim_output_dir(directory: str | Path, world_size: int = 1) -> None:
    """Make the output folder now, so that one that cannot be written is told before the work and not after it.

    Each of `world_size` processes must see what the others write there: a checkpoint is made and found by all of them.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        is_writable = os.access(directory, os.W_OK | os.X_OK)
    except OSError as error:
        raise UserError(f"output_dir '{directory}' cannot be made ({error.strerror}): name another folder") from None
    if not is_writable:
        raise UserError(f"output_dir '{directory}' cannot be written: name another folder or mend its permissions")
    if world_size > 1:
        _check_shared(Path(directory), world_size)


def hold_output_dir(directory: str | Path) -> None:
    """Keep other runs from the folder until this process ends: called by one process of a run.

    What a run that was killed has left of a model it was saving goes.
    Raises UserError where another run has it. A file system without locks keeps nobody out.
    """
    # Not closed: the end of the process does that, and frees the lock.
    lock, deadline = os.open(Path(directory) / ".lock", os.O_CREAT | os.O_RDWR), time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: its forks do not hold it
            for unfinished in Path(directory).glob(f"{_UNFINISHED}*"):
                shutil.rmtree(unfinished, ignore_errors=True)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return
            if time.monotonic() > deadline:
                raise UserError(f"another run writes to output_dir '{directory}': name another, or end it") from None
        time.sleep(0.2)


def _check_shared(directory: Path, world_size: int) -> None:
    mine = directory / f".{secrets.token_hex(8)}.rank"
    mine.touch()
    try:
        names = gather_from_all(mine.name, world_size)
        seen = gather_from_all((directory / names[0]).exists(), world_size)
    finally:
        mine.unlink()
    if not all(seen):
        raise UserError(
            f"output_dir '{directory}' is not one folder: rank {seen.index(False)} does not see what rank 0 writes "
            "there; name one on a file system that all machines share"
        )


def write_marker(checkpoint: Path, state: dict[str, Any]) -> None:
    """Record `state` in the finished checkpoint directory; its presence says that everything before it was written."""
    write_json(checkpoint / MARKER, state, indent=None)


def read_marker(checkpoint: Path) -> dict[str, Any]:
    """The state written by `write_marker`. Raises UserError when the checkpoint has none that can be read."""
    try:
        state = json.loads((checkpoint / MARKER).read_text(encoding="utf-8"))
        return {**state, "step": int(state["step"])}
    except FileNotFoundError:
        raise UserError(f"checkpoint '{checkpoint}' has no {MARKER}: it is incomplete, use an earlier one") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{MARKER} in checkpoint '{checkpoint}' is damaged: use an earlier checkpoint") from None


def last_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest `checkpoint-N` with a marker, None when there is none. Interrupted saves are passed over."""
    return max(_complete_checkpoints(output_dir), default=(0, None))[1]


def _complete_checkpoints(output_dir: str | Path) -> list[tuple[int, Path]]:
    return [(step, path) for step, path in saved_checkpoints(output_dir).items() if (path / MARKER).exists()]


def drop_old_checkpoints(output_dir: str | Path, limit: int | None, spare: str | None = None) -> None:
    """Leave the `limit` checkpoints marked last and the one named `spare`; interrupted saves go as well.

    None or 0 leaves all. A marker is removed before its folder, so a deletion cut short leaves no false claim.
    """
    if not limit:
        return
    marked = [((path / MARKER).stat().st_mtime_ns, step, path) for step, path in _complete_checkpoints(output_dir)]
    retained = {path.name for *_, path in sorted(marked)[-limit:]} | {Path(spare or "").name}
    for path in saved_checkpoints(output_dir).values():
        if path.name not in retained:
            (path / MARKER).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


class MarksCheckpoints:
    """Mixin over PaddleNLP's Trainer: a checkpoint is marked when every rank has written its part of it.

    Older checkpoints are deleted after that. Trainer deletes them before, so that a run stopped in between would have
    nothing to resume from, and with a single process not at all. Unified checkpoints are loaded by `AnyLayoutHandler`.
    `trained_with` is written beside the weights; None where the model writes it itself. It brings `CALLBACKS` too.
    """

    trained_with: TrainedWith | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        for callback in CALLBACKS:
            trainer.add_callback(callback())
        if trainer.args.unified_checkpoint:
            trainer.unified_checkpoint_handler = AnyLayoutHandler(trainer.args)

    def marker_state(self) -> dict[str, Any]:
        """State for the marker beside the step."""
        return {}

    def save_beside(self, checkpoint: Path) -> None:
        """Add files to a checkpoint that is not marked yet; called on every rank."""

    def _save_checkpoint(self, model: Any, metrics: Any = None) -> None:
        trainer: Any = self
        metrics = of_best(metrics, trainer.args.metric_for_best_model)
        step, world_size = trainer.state.global_step, max(1, trainer.args.world_size)
        folder = Path(trainer.args.output_dir) / f"checkpoint-{step}"
        if trainer.is_world_process_zero():
            shutil.rmtree(folder, ignore_errors=True)  # of a run before, whose optimizer or samples would stay
        barrier(world_size)
        super()._save_checkpoint(model, metrics)  # type: ignore[misc]  # Trainer comes next in the method order
        self.save_beside(folder)
        barrier(world_size)
        if trainer.is_world_process_zero():
            if self.trained_with is not None:
                write_trained_with(folder, self.trained_with)
            shared = {"step": step, "seed": trainer.args.seed, "topology": asdict(Topology.of(trainer.args))}
            write_marker(folder, {**shared, **self.marker_state()})
            drop_old_checkpoints(folder.parent, trainer.args.save_total_limit, trainer.state.best_model_checkpoint)

    def _rotate_checkpoints(self, *args: Any, **kwargs: Any) -> None:
        """Left to `_save_checkpoint`."""


def load_trained(trainer: Any, checkpoint: Path) -> None:
    """Give the trainer's model the weights of a run that has nothing left to train; they are what is saved next."""
    trainer.state.global_step = read_marker(checkpoint)["step"]
    if trainer.args.load_best_model_at_end:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        if best := best_checkpoint(state.get("best_model_checkpoint"), trainer.args.output_dir):
            trainer.state.best_model_checkpoint, checkpoint = best, Path(best)
    trainer._load_from_checkpoint(str(checkpoint))


def save_final(
    trainer: Any,
    directory: str | Path,
    save_model: Callable[[Any, str, Weights | None], None] = save_policy,
    trained_with: TrainedWith | None = None,
) -> None:
    """Leave the trained model (safetensors, no pickle) and its tokenizer in `directory`; every rank must call it.

    What ranks have parts of is put together, and adapters are merged into the weights. `trained_with` is written
    beside them; None where `save_model` does that, or nothing is known.

    Each file appears whole, the weights last: an interrupted save leaves what was there. Others then go.
    """
    world_size = max(1, trainer.args.world_size)
    barrier(world_size)
    model = joined_stages(without_adapters(trainer.model))
    weights = gathered_weights(getattr(model, "backbone", model))  # of a reward model, what is divided
    if trainer.is_world_process_zero():
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=directory) as unfinished:
            trainer.tokenizer.save_pretrained(unfinished)
            save_model(model, unfinished, weights)
            if trained_with is not None:
                write_trained_with(Path(unfinished), trained_with)
            files = [path for path in Path(unfinished).rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path.suffix == ".safetensors"):
                target = Path(directory) / path.relative_to(unfinished)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
        drop_other_weights(Path(directory), [path.name for path in files])
    barrier(world_size)


def mark_finished(trainer: Any, config: StageConfig) -> None:
    """Record that the run is over: the same command will find nothing left to do."""
    if trainer.is_world_process_zero():
        state = {"step": trainer.state.global_step, "max_steps": trainer.args.max_steps, "settings": _settings(config)}
        write_marker(Path(trainer.args.output_dir), state)


def is_finished_run(args: TrainingArguments, config: StageConfig, further: Callable[[], Sequence[str]] = tuple) -> bool:
    """True if `output_dir` has a finished run of at least `args.max_steps`, which the first process then reports.

    Settings that have another value than in that run are named, and `further` lines follow. One that early stopping
    ended before is not finished once its keys are others. Raises UserError for a damaged marker.
    """
    folder = Path(args.output_dir)
    has_weights = any(folder.glob("*.safetensors"))
    if args.overwrite_output_dir or args.resume_from_checkpoint or not has_weights or not (folder / MARKER).is_file():
        return False
    state = read_marker(folder)
    now, before = _settings(config), state.get("settings", {})
    changed = [name for name, value in now.items() if before.get(name, value) != value]
    has_stopped = state["step"] < state.get("max_steps", 0)
    is_other = has_stopped and any(name.startswith("early_stopping") for name in changed)
    if is_other or state.get("max_steps", 0) < args.max_steps:
        return False
    if args.process_index == 0:
        remedy = "change early_stopping" if has_stopped else "raise max_steps"
        remedy += " to go on" if last_complete_checkpoint(folder) else " to train it anew, as there is no checkpoint"
        but = f" (its {', '.join(changed)} had other values)" if changed else ""
        said = (
            f"finished: '{folder}' has the model of step {state['step']}, the last of this run{but}, and is left as it "
            f"is; {remedy}, set overwrite_output_dir to start over, or name another output_dir"
        )
        print(said, *further(), sep="\n", file=sys.stderr, flush=True)
    return True


def _settings(config: StageConfig) -> dict[str, Any]:
    """The settings that distinguish runs; in RL gradient_accumulation_steps is left out, which is derived."""
    derived = {"gradient_accumulation_steps"} if isinstance(config, RLConfig) else set()
    unlike = {"wandb_api_key", "overwrite_output_dir", "resume_from_checkpoint"}
    return config.model_dump(mode="json", exclude=unlike | derived)


def start_over(args: TrainingArguments, checkpoint: Path | None) -> None:
    """Take back that a run is finished, and that there are later checkpoints, from which the next would resume."""
    (Path(args.output_dir) / MARKER).unlink(missing_ok=True)
    done = 0 if checkpoint is None else read_marker(checkpoint)["step"]
    for step, path in _complete_checkpoints(args.output_dir):
        if step > done:
            (path / MARKER).unlink(missing_ok=True)


def check_resumable(
    args: TrainingArguments, checkpoint: Path, state: Mapping[str, Any], updates_per_rollout: int = 1
) -> None:
    """Raises UserError when training cannot go on from `checkpoint`, whose marker holds `state`."""
    step = state["step"]
    if not any(checkpoint.glob("optimizer*")):
        raise UserError(
            f"checkpoint '{checkpoint}' has no optimizer state (ignore_save_lr_and_optim), so training cannot go on: "
            "set overwrite_output_dir to start over, or give the checkpoint as the model to start from its weights"
        )
    if not args.load_sharded_model:  # which divides the state anew
        check_topology(checkpoint, state.get("topology"), Topology.of(args))
    if step % updates_per_rollout:
        raise UserError(
            f"checkpoint '{checkpoint}' was saved after step {step}, in the middle of what are rollouts of "
            f"{updates_per_rollout} optimizer steps now: resume with the batch sizes it was saved with"
        )


def resume_point(args: TrainingArguments) -> Path | None:
    """The checkpoint to resume from: `resume_from_checkpoint`, else the newest complete checkpoint in `output_dir`."""
    if args.resume_from_checkpoint:
        path = Path(args.resume_from_checkpoint)
        if not path.is_dir():
            raise UserError(f"resume_from_checkpoint '{path}' is not a directory: name a checkpoint-N folder")
        return path
    return None if args.overwrite_output_dir else last_complete_checkpoint(args.output_dir)
