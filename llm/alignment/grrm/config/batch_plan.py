"""Batch arithmetic of a run, worked out before any model is loaded.

One rollout draws `global_batch_size` prompts and samples each `rollout_n` times. Its rows are then used for
`global_batch_size / global_mini_batch_size * update_iters` optimizer steps, each over `global_mini_batch_size`
prompts spread over the data ranks. A prompt's rows stay on one rank. `max_steps` counts optimizer steps.

A micro-batch has `per_device_train_batch_size` rows, or as many as `max_tokens_per_micro_batch` has room for: then as
many micro-batches as rows are planned, and most stay empty.

PaddleNLP multiplies its default for `global_mini_batch_size` (-1) by `rollout_n` once more, so that one optimizer step
spans several rollouts; here -1 means `global_batch_size`, one step per rollout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from grrm.config.keys.optimization import LengthConfig
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig
from grrm.errors import UserError

FARTHEST = 10**6  # from a value that does not fit, where one that does is looked for


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Counts of one run; rows are sampled responses, updates are optimizer steps.

    `optimizer_steps` and `rollouts` are None when `max_steps` leaves the length to the epochs and the number of
    prompts is not known.
    """

    data_ranks: int
    prompts_per_rollout: int
    prompts_per_rollout_per_rank: int
    prompts_generated_per_pass: int
    rows_per_rollout: int
    rows_per_rank: int
    prompts_per_update: int
    rows_per_update: int
    micro_batch_rows: int
    micro_batches_per_update: int
    updates_per_rollout: int
    rollouts: int | None
    optimizer_steps: int | None
    max_tokens_per_row: int
    micro_batch_tokens: int = 0  # above 0 a micro-batch holds so many, and there are at most as many as rows

    @property
    def max_tokens_per_rollout(self) -> int:
        """Upper bound of prompt and response tokens over all ranks."""
        return self.rows_per_rollout * self.max_tokens_per_row

    @property
    def max_tokens_per_micro_batch(self) -> int:
        """Upper bound of the tokens one rank holds in a forward pass."""
        return self.micro_batch_tokens or self.micro_batch_rows * self.max_tokens_per_row


def batch_plan(settings: RLConfig, data_ranks: int, n_train_prompts: int | None = None) -> BatchPlan:
    """Work out the plan for `data_ranks` ranks (data times sharding degree).

    Raises UserError, or UserErrors for several, naming the nearest values that fit, when something does not divide.
    """
    problems, prompts = Problems(), settings.global_batch_size
    _check_divides("global_batch_size", prompts, data_ranks)
    generated = mini = prompts
    with problems.noted():
        generated = _generated(settings, data_ranks)
    with problems.noted():
        mini = _mini_batch(settings, data_ranks)
    problems.raise_if_any()
    updates, rollouts, micro_batches = prompts // mini * settings.update_iters, None, 0
    with problems.noted():
        rollouts = _rollouts(settings, updates, n_train_prompts)
    with problems.noted():
        micro_batches = _micro_batches(settings, mini, data_ranks)
    problems.raise_if_any()
    if settings.dataloader_drop_last and n_train_prompts is not None and n_train_prompts < generated:
        key = "global_batch_size" if generated == prompts else "global_gen_batch_size"
        raise UserError(
            f"{n_train_prompts} prompts do not fill a {key} of {generated}, and dataloader_drop_last leaves the rest "
            f"out: add data, lower {key} or set dataloader_drop_last: false."
        )
    return BatchPlan(
        data_ranks=data_ranks,
        prompts_per_rollout=prompts,
        prompts_per_rollout_per_rank=prompts // data_ranks,
        prompts_generated_per_pass=generated,
        rows_per_rollout=prompts * settings.rollout_n,
        rows_per_rank=prompts // data_ranks * settings.rollout_n,
        prompts_per_update=mini,
        rows_per_update=mini * settings.rollout_n,
        micro_batch_rows=1 if settings.max_tokens_per_micro_batch else settings.per_device_train_batch_size,
        micro_batches_per_update=micro_batches,
        updates_per_rollout=updates,
        rollouts=rollouts,
        optimizer_steps=None if rollouts is None else rollouts * updates,
        max_tokens_per_row=settings.max_prompt_len + settings.max_dec_len,
        micro_batch_tokens=settings.max_tokens_per_micro_batch,
    )


def repeated_prompts(plan: BatchPlan, n_prompts: int) -> str | None:
    """A sentence where one batch of prompts has more of them than there are, so that some are in it several times."""
    n_per_pass = plan.prompts_generated_per_pass
    if n_prompts >= n_per_pass:
        return None
    key = "global_batch_size" if n_per_pass == plan.prompts_per_rollout else "global_gen_batch_size"
    return (
        f"{n_prompts} prompts for a {key} of {n_per_pass}: they repeat within a rollout, as groups of their own; add "
        f"data or lower {key}"
    )


def accumulated_micro_batches(settings: LengthConfig, data_ranks: int, n_examples: int) -> int:
    """`gradient_accumulation_steps`, or the micro-batches of a data rank in an epoch where there are fewer, as Trainer.

    1 where there is none.
    """
    return max(1, min(settings.gradient_accumulation_steps, _batches_of_epoch(settings, data_ranks, n_examples)))


def _batches_of_epoch(settings: LengthConfig, data_ranks: int, n_examples: int) -> int:
    batches = math.ceil(n_examples / data_ranks) / settings.per_device_train_batch_size
    return math.floor(batches) if settings.dataloader_drop_last else math.ceil(batches)


def supervised_steps(settings: LengthConfig, data_ranks: int, n_examples: int) -> int:
    """`max_steps`, or the optimizer steps in `num_train_epochs`, counted as Trainer counts them.

    Raises UserError when that is not a single step, or an epoch not a single batch.
    """
    if not n_examples:
        raise UserError("no examples are left to train on: add data, or lower val_size")
    n_batches, epochs = _batches_of_epoch(settings, data_ranks, n_examples), settings.num_train_epochs
    if not n_batches:
        raise UserError(
            f"{n_examples} examples do not fill one batch, and dataloader_drop_last leaves the rest out: add data, "
            "lower per_device_train_batch_size or set dataloader_drop_last: false"
        )
    if settings.max_steps > 0:
        return int(settings.max_steps)
    steps = int(max(n_batches // settings.gradient_accumulation_steps, 1) * epochs)
    if steps < 1:
        raise UserError(
            f"{n_examples} examples for {epochs:g} epochs are not one optimizer step: add data, lower "
            "per_device_train_batch_size or set max_steps"
        )
    return steps


def _mini_batch(settings: RLConfig, data_ranks: int) -> int:
    prompts, mini = settings.global_batch_size, settings.global_mini_batch_size
    if mini == -1:
        return prompts
    if mini >= 1 and prompts % mini == 0 and mini % data_ranks == 0:
        return mini
    near = nearest_values(mini, lambda value: prompts % value == 0 and value % data_ranks == 0, prompts)
    raise UserError(
        f"global_mini_batch_size {mini} must divide global_batch_size {prompts} and be a multiple of the {data_ranks} "
        f"data-parallel ranks; use {near}, or -1 for one update per rollout."
    )


def _micro_batches(settings: RLConfig, mini: int, data_ranks: int) -> int:
    rows, micro = mini // data_ranks * settings.rollout_n, settings.per_device_train_batch_size
    if settings.max_tokens_per_micro_batch:
        return rows
    if rows % micro:
        near = nearest_values(micro, lambda fewer: rows % fewer == 0, rows)
        raise UserError(
            f"per_device_train_batch_size {micro} does not divide the {rows} rows a rank has per "
            f"update ({mini} prompts x rollout_n {settings.rollout_n} over {data_ranks} ranks); use {near}."
        )
    return rows // micro


def _generated(settings: RLConfig, data_ranks: int) -> int:
    generated = settings.global_gen_batch_size
    if generated == -1:
        return settings.global_batch_size
    if not settings.dynamic_sampling and generated != settings.global_batch_size:
        raise UserError(
            f"global_gen_batch_size {generated} differs from global_batch_size {settings.global_batch_size}, which "
            "only dynamic_sampling can use; set dynamic_sampling true or remove the key."
        )
    if generated < 1:
        raise UserError(f"global_gen_batch_size is {generated}, it must be at least 1, or -1 for global_batch_size.")
    _check_divides("global_gen_batch_size", generated, data_ranks)
    return generated


def _check_divides(key: str, value: int, data_ranks: int) -> None:
    if value % data_ranks:
        near = nearest_values(value, lambda other: other % data_ranks == 0, value + data_ranks)
        raise UserError(f"{key} {value} is not a multiple of the {data_ranks} data-parallel ranks; use {near}.")


def _rollouts(settings: RLConfig, updates: int, n_train_prompts: int | None) -> int | None:
    if settings.max_steps > 0:
        if settings.max_steps % updates:
            near = nearest_values(settings.max_steps, lambda steps: steps % updates == 0, settings.max_steps + updates)
            raise UserError(
                f"max_steps {settings.max_steps} would stop in the middle of a rollout, which has {updates} optimizer "
                f"steps; use {near}."
            )
        return settings.max_steps // updates
    if n_train_prompts is None:
        return None
    size, epochs = settings.global_batch_size, settings.num_train_epochs
    if settings.dataloader_drop_last:
        rollouts = math.floor(n_train_prompts // size * epochs)  # the rest of each epoch is passed over
    else:
        rollouts = math.floor(n_train_prompts * epochs) // size
    if rollouts < 1:
        raise UserError(
            f"{n_train_prompts} prompts for {settings.num_train_epochs:g} epochs do not fill one rollout of "
            f"global_batch_size {settings.global_batch_size}; add data or lower global_batch_size."
        )
    return rollouts


def nearest_values(value: int, fits: Callable[[int], bool], upper: int) -> str:
    """The closest fitting values at or below and above `value` in 1..`upper`, as text: "12 or 16".

    Of values further away than a million there is none worth naming.
    """
    start = min(value, upper)
    below = next((other for other in range(start, max(start - FARTHEST, 0), -1) if fits(other)), None)
    start = max(value, 0) + 1
    above = next((other for other in range(start, min(start + FARTHEST, upper + 1)) if fits(other)), None)
    return " or ".join(str(other) for other in (below, above) if other is not None) or "another size"
