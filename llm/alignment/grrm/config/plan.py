"""`grrm plan`: batches and memory of an argument file as a table, without a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from grrm.config.batch_plan import BatchPlan, accumulated_micro_batches, repeated_prompts, supervised_steps
from grrm.config.checks import Launch
from grrm.config.key import aliases_of, keys_of
from grrm.config.load import Prepared, prepare, read_yaml, smallest_world
from grrm.config.memory_rows import DOES_NOT_FIT, memory_rows, shape_of_file
from grrm.config.rollout_checks import held_out_rows
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig
from grrm.config.stages import STAGES, Stage
from grrm.config.workload import Workload
from grrm.data.held_out import held_out_count
from grrm.data.layouts.arrow_files import open_parquet
from grrm.data.layouts.text_files import lines_of

Supervised = SFTConfig | RewardModelConfig | DPOConfig
Row = tuple[str, str, str]  # name, value, what it follows from
UNKNOWN = "unknown: train_datasets is not here"


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware of a plan: so many devices, each with `memory` bytes (None: not said), and tokens a second of all."""

    devices: int = 1
    memory: int | None = None
    tokens_per_second: float | None = None
    model: str | None = None  # whose shape is planned, in place of the file's


def stage_of_file(raw: Mapping[str, Any]) -> Stage:
    """The stage that knows most of a file's keys."""

    def unknown(stage: Stage) -> int:
        return sum(name not in keys_of(stage.config) and name not in aliases_of(stage.config) for name in raw)

    return min(STAGES, key=unknown)


def rl_rows(config: RLConfig, plan: BatchPlan, n_prompts: int | None) -> list[Row]:
    """Every number of an RL run's batches."""
    length = f"max_steps {config.max_steps}" if config.max_steps > 0 else f"{config.num_train_epochs:g} epochs"
    repeated = None if n_prompts is None else repeated_prompts(plan, n_prompts)
    rows: list[tuple[str, object, str]] = [
        ("advantage rule", config.advantage_rule, f"rl_algorithm {config.rl_algorithm}"),
        ("policy loss", config.policy_loss, config.loss_agg_mode),
        ("data ranks", plan.data_ranks, _world(config)),
        ("training prompts", UNKNOWN if n_prompts is None else n_prompts, "before over-long ones are left out"),
        ("prompts per rollout", plan.prompts_per_rollout, repeated or "global_batch_size"),
        ("prompts per rollout and rank", plan.prompts_per_rollout_per_rank, ""),
        ("rows per rollout", plan.rows_per_rollout, f"x rollout_n {config.rollout_n}"),
        ("rows per rollout and rank", plan.rows_per_rank, ""),
        ("rows per update", plan.rows_per_update, f"{plan.prompts_per_update} prompts, global_mini_batch_size"),
        *_micro_batch_rows(plan),
        ("updates per rollout", plan.updates_per_rollout, f"update_iters {config.update_iters}"),
        ("rollouts", UNKNOWN if plan.rollouts is None else plan.rollouts, length),
        ("optimizer steps", UNKNOWN if plan.optimizer_steps is None else plan.optimizer_steps, ""),
        ("tokens per row, at most", plan.max_tokens_per_row, "max_prompt_len + max_dec_len"),
        ("tokens per micro-batch, at most", plan.max_tokens_per_micro_batch, "on one rank"),
        ("tokens per rollout, at most", plan.max_tokens_per_rollout, "over all ranks"),
    ]
    return _as_text(rows)


def _micro_batch_rows(plan: BatchPlan) -> list[tuple[str, object, str]]:
    n, name = plan.micro_batches_per_update, "micro-batches per update and rank"
    if plan.micro_batch_tokens:
        return [("rows per micro-batch", "as many as fit", "max_tokens_per_micro_batch"), (f"{name}, at most", n, "")]
    return [
        ("rows per micro-batch", plan.micro_batch_rows, "per_device_train_batch_size"),
        (name, n, "gradient accumulation, derived"),
    ]


def supervised_rows(config: Supervised, data_ranks: int, n_rows: int | None) -> list[Row]:
    """Every number of the batches of supervised training, of a policy or a reward model."""
    what = "rows" if isinstance(config, SFTConfig) else "pairs" if isinstance(config, DPOConfig) else "groups"
    rows = config.per_device_train_batch_size
    accumulated = config.gradient_accumulation_steps
    if n_rows is not None:
        accumulated = accumulated_micro_batches(config, data_ranks, n_rows)
    per_step = rows * accumulated * data_ranks
    steps = None if n_rows is None else supervised_steps(config, data_ranks, n_rows)
    steps = config.max_steps if config.max_steps > 0 else steps
    length = f"max_steps {config.max_steps}" if config.max_steps > 0 else f"{config.num_train_epochs:g} epochs"
    table: list[tuple[str, object, str]] = [
        ("data ranks", data_ranks, _world(config)),
        (f"training {what}", UNKNOWN if n_rows is None else n_rows, "before over-long ones are left out"),
        (f"{what} per micro-batch", rows, "per_device_train_batch_size"),
        ("micro-batches per step and rank", accumulated, "gradient_accumulation_steps, at most an epoch"),
        (f"{what} per optimizer step", per_step, "over all ranks"),
        ("optimizer steps", UNKNOWN if steps is None else steps, length),
        ("tokens per row, at most", config.max_length, "max_length"),
    ]
    return _as_text(table)


def _world(config: RLConfig | Supervised) -> str:
    stages = f"{config.pipeline_parallel_degree} stages, " if config.pipeline_parallel_degree > 1 else ""
    return f"{stages}tensor parallel {max(config.tensor_parallel_degree, 1)}, sharding {config.sharding or 'off'}"


def _as_text(rows: Sequence[tuple[str, object, str]]) -> list[Row]:
    return [(name, f"{value:,}" if isinstance(value, int) else str(value), note) for name, value, note in rows]


def count_rows(path: str) -> int | None:
    """Rows of a parquet file, or non-empty lines of another, decompressed; None where there is no such file."""
    if not Path(path).is_file():
        return None
    if path.endswith(".parquet"):
        return int(open_parquet(Path(path)).metadata.num_rows)
    return sum(1 for _, line in lines_of(Path(path)) if line.strip())


def fewest_devices(path: str, overrides: Sequence[str] = ()) -> int:
    """The devices that the degrees of a file need. Raises UserError for what a run would refuse."""
    return smallest_world(prepared_file(path, overrides, None).config)


def prepared_file(path: str, overrides: Sequence[str], devices: int | None, n_rows: int | None = None) -> Prepared[Any]:
    """The file of any stage for so many devices elsewhere."""
    stage, launch = stage_of_file(read_yaml(path)), None if devices is None else Launch(world_size=devices)
    return prepare(stage.config, path, overrides, launch, check_machine=False, n_prompts=n_rows)


def show_plan(path: str, machine: Machine, overrides: Sequence[str] = (), out: TextIO | None = None) -> bool:
    """Print the plan of `path` started on `machine`; plain text when `out` is not a terminal.

    False where the run does not fit the memory that the machine names. Neither device nor files of the run need to be
    here. Raises UserError for what a run would refuse, and for degrees that do not divide the model.
    """
    out = out or sys.stdout
    rows = plan_of_file(path, machine, overrides)
    fits = DOES_NOT_FIT not in [row[:2] for row in rows]
    if not out.isatty():
        width = max(len(name) for name, _, _ in rows)
        for name, value, note in rows:
            print(f"{name:<{width}}  {value}{f'  ({note})' if note else ''}", file=out)
        return fits
    table = Table(title=f"{path} on {machine.devices} device(s)", title_justify="left")
    table.add_column("quantity")
    table.add_column("value", justify="right", style="bold")
    table.add_column("from", style="dim")
    for row in rows:
        table.add_row(*row)
    Console(file=out).print(table)
    return fits


def plan_of_file(path: str, machine: Machine, overrides: Sequence[str] = ()) -> list[Row]:
    """The rows that `show_plan` prints."""
    config = prepared_file(path, overrides, machine.devices).config
    n_rows = count_rows(config.train_datasets)
    if n_rows is not None:
        n_rows -= _held_out(config, n_rows)
    prepared = prepared_file(path, overrides, machine.devices, n_rows)
    config, plan = prepared.config, prepared.plan
    shape = shape_of_file(config, machine.model)
    if shape is not None:
        shape.check_divides(max(config.tensor_parallel_degree, 1), path)
    if plan is not None:
        rows = rl_rows(config, plan, n_rows)
        tokens = plan.max_tokens_per_row * config.rollout_n
    else:
        ranks_of_model = max(config.tensor_parallel_degree, 1) * max(config.pipeline_parallel_degree, 1)
        rows = supervised_rows(config, machine.devices // ranks_of_model, n_rows)
        tokens = Workload.of(config, 1).tokens
    rows += _hours(machine.tokens_per_second, tokens, n_rows)
    return rows + memory_rows(config, shape, machine.devices, machine.memory)


def _held_out(config: RLConfig | Supervised, n_rows: int) -> int:
    """Rows of the training file that are not trained on; in supervised stages more where a prompt has several rows."""
    if isinstance(config, RLConfig):
        return held_out_rows(config, n_rows)
    return 0 if config.eval_datasets else min(n_rows, held_out_count(config.val_size, n_rows))


def _hours(tokens_per_second: float | None, tokens_per_example: int, n_rows: int | None) -> list[Row]:
    """Hours of an epoch at most, every row as long as it may be; of a thousand rows where their number is unknown."""
    if tokens_per_second is None:
        return []
    name, n = ("hours per epoch, at most", n_rows) if n_rows else ("hours per 1,000 rows, at most", 1000)
    hours = n * tokens_per_example / tokens_per_second / 3600
    return [(name, f"{hours:,.2f}", f"{tokens_per_second:,.0f} tokens a second on all devices together")]
