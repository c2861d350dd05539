"""Layout of a run over processes, as a checkpoint's marker holds it, and the layouts it can be resumed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grrm.errors import UserError
from grrm.paddlenlp_api.training import TrainingArguments


@dataclass(frozen=True, slots=True)
class Topology:
    """Degrees of parallelism, rows of an optimizer step, and whether checkpoints are PaddleNLP's unified ones."""

    data: int
    sharding: int
    tensor: int
    pipeline: int
    rows_per_step: int
    unified: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> Topology:
        """Return the topology of this run, once its gradient accumulation is known."""
        sharding = max(args.sharding_parallel_degree, 1)
        ranks = args.dataset_world_size
        return cls(
            data=ranks // sharding,
            sharding=sharding,
            tensor=max(args.tensor_parallel_degree, 1),
            pipeline=max(args.pipeline_parallel_degree, 1),
            rows_per_step=args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks,
            unified=bool(args.unified_checkpoint),
        )

    def state(self) -> dict[str, int]:
        """Return the state for a marker."""
        return asdict(self)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Degrees that a checkpoint's parts belong to, unless it is a unified one."""
        return self.sharding, self.tensor, self.pipeline

    @property
    def layout(self) -> str:
        """Processes and degrees in words."""
        degrees = {"data": self.data, "sharding": self.sharding, "tensor": self.tensor, "pipeline": self.pipeline}
        processes = self.data * self.sharding * self.tensor * self.pipeline
        product = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
        return f"{processes} process{'es' * (processes > 1)}" + (f" ({product})" if product else "")


def check_topology(checkpoint: Path, saved: Mapping[str, Any] | None, now: Topology) -> None:
    """Raises UserError when a run that is laid out as `now` cannot go on from what one laid out as `saved` wrote.

    A unified checkpoint fits any layout. Of the other kind each part belongs to one place in the tensor-parallel,
    pipeline and sharding groups; only the number of data-parallel ranks may change. None, of a marker without a
    topology, is not checked.
    """
    if saved is None:
        return
    before = Topology(**saved)
    if before.rows_per_step != now.rows_per_step:
        raise UserError(
            f"checkpoint '{checkpoint}' is of a run with {before.rows_per_step} rows in an optimizer step, and this "
            f"one has {now.rows_per_step}, which would skip or repeat rows: resume with the batch sizes it was saved "
            "with, or give the checkpoint as the model to start from its weights"
        )
    if before.unified and now.unified:
        return
    if before.unified:
        raise UserError(f"checkpoint '{checkpoint}' is a unified one: set unified_checkpoint: true to resume from it")
    if before.parts != now.parts:
        raise UserError(
            f"checkpoint '{checkpoint}' was saved in parts by {before.layout}, and this run is laid out over "
            f"{now.layout}: resume with the same tensor, sharding and pipeline degrees; with unified_checkpoint: true "
            "the next checkpoint fits any layout"
        )
