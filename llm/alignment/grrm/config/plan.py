"""`grrm plan`: the batch arithmetic of an argument file as a table, without loading a model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

from grrm.config.batch_plan import BatchPlan
from grrm.config.checks import Launch
from grrm.config.load import prepare, read_yaml
from grrm.config.rl_config import RLConfig
from grrm.errors import UserError


def plan_rows(config: RLConfig, plan: BatchPlan, n_prompts: int | None) -> list[tuple[str, str, str]]:
    """(name, value, what it follows from) for every number of the plan."""
    world = f"tensor parallel {max(config.tensor_parallel_degree, 1)}, sharding {config.sharding or 'off'}"
    length = f"max_steps {config.max_steps}" if config.max_steps > 0 else f"{config.num_train_epochs:g} epochs"
    unknown = "unknown: train_datasets is not here"
    rows: list[tuple[str, object, str]] = [
        ("advantage rule", config.advantage_rule, f"rl_algorithm {config.rl_algorithm}"),
        ("policy loss", config.policy_loss, config.loss_agg_mode),
        ("data ranks", plan.data_ranks, world),
        ("training prompts", unknown if n_prompts is None else n_prompts, "before over-long ones are left out"),
        ("prompts per rollout", plan.prompts_per_rollout, "global_batch_size"),
        ("prompts per rollout and rank", plan.prompts_per_rollout_per_rank, ""),
        ("rows per rollout", plan.rows_per_rollout, f"x rollout_n {config.rollout_n}"),
        ("rows per rollout and rank", plan.rows_per_rank, ""),
        ("rows per update", plan.rows_per_update, f"{plan.prompts_per_update} prompts, global_mini_batch_size"),
        ("rows per micro-batch", plan.micro_batch_rows, "per_device_train_batch_size"),
        ("micro-batches per update and rank", plan.micro_batches_per_update, "gradient accumulation, derived"),
        ("updates per rollout", plan.updates_per_rollout, f"update_iters {config.update_iters}"),
        ("rollouts", unknown if plan.rollouts is None else plan.rollouts, length),
        ("optimizer steps", unknown if plan.optimizer_steps is None else plan.optimizer_steps, ""),
        ("tokens per row, at most", plan.max_tokens_per_row, "max_prompt_len + max_dec_len"),
        ("tokens per micro-batch, at most", plan.max_tokens_per_micro_batch, "on one rank"),
        ("tokens per rollout, at most", plan.max_tokens_per_rollout, "over all ranks"),
    ]
    return [(name, f"{value:,}" if isinstance(value, int) else str(value), note) for name, value, note in rows]


def count_lines(path: str) -> int | None:
    """Non-empty lines of the file, None where there is no such file."""
    if not Path(path).is_file():
        return None
    with open(path, "rb") as lines:
        return sum(1 for line in lines if line.strip())


def show_plan(path: str, nproc: int, overrides: Sequence[str] = (), out: TextIO | None = None) -> None:
    """Print the plan of `path` started with `nproc` processes; plain text when `out` is not a terminal.

    Neither device nor files of the run need to be here. Raises UserError for what a run would refuse.
    """
    out = out or sys.stdout
    if set(read_yaml(path)) & {"model_name_or_path", "init_from_config"}:
        raise UserError(f"{path} is an SFT argument file, which has no rollouts to plan; give an RL one.")
    launch = Launch("cpu", nproc)
    config = prepare(RLConfig, path, overrides, launch, check_machine=False, check_on_device=False).config
    n_prompts = count_lines(config.train_datasets)
    prepared = prepare(
        RLConfig, path, overrides, launch, check_machine=False, check_on_device=False, n_prompts=n_prompts
    )
    assert prepared.plan is not None, "an RL file that passes its checks has a plan"
    rows = plan_rows(prepared.config, prepared.plan, n_prompts)
    if not out.isatty():
        width = max(len(name) for name, _, _ in rows)
        for name, value, note in rows:
            print(f"{name:<{width}}  {value}{f'  ({note})' if note else ''}", file=out)
        return
    table = Table(title=f"{path} on {nproc} process(es)", title_justify="left")
    table.add_column("quantity")
    table.add_column("value", justify="right", style="bold")
    table.add_column("from", style="dim")
    for row in rows:
        table.add_row(*row)
    Console(file=out).print(table)
