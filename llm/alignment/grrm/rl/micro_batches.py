"""Splitting a rank's share of an optimizer step into micro-batches, by rows or by tokens, and counting the step."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.config.batch_plan import BatchPlan
from grrm.config.keys.rollout import RolloutConfig
from grrm.models.packing import laid_out_tokens
from grrm.rl.experience import Row, pad_right
from grrm.rl.losses.aggregation import Denominators, count_denominators


def pack_tokens(config: RolloutConfig) -> int:
    """The longest packed row the argument file allows: `max_length`, or 0 with `share_prompt` off."""
    return config.max_length if config.share_prompt else 0


def row_denominators(rows: Sequence[Row], longest: int) -> Denominators:
    """What `rows`, of one optimizer step on all ranks, hold; responses have at most `longest` tokens."""
    width = max(len(row.token_ids) for row in rows)
    masks, advantages = [row.mask_T for row in rows], [row.advantages_T for row in rows]
    return count_denominators(pad_right(masks, width), pad_right(advantages, width), width=longest)


def micro_batches_of(share: Sequence[Row], plan: BatchPlan, pack: int) -> list[list[Row]]:
    """As many micro-batches as the plan has for an optimizer step; rows stay in order.

    With a token budget each takes as many rows as `lay_out` fits into it. Remaining micro-batches of the plan are
    empty, and come first, because ranks all-reduce their gradients in the last one.
    """
    if not plan.micro_batch_tokens:
        rows = plan.micro_batch_rows
        return [list(share[i : i + rows]) for i in range(0, len(share), rows)]
    filled: list[list[Row]] = []
    for row in share:
        if filled and _tokens([*filled[-1], row], pack) <= plan.micro_batch_tokens:
            filled[-1].append(row)
        else:
            filled.append([row])
    return [[] for _ in range(plan.micro_batches_per_update - len(filled))] + filled


def _tokens(rows: Sequence[Row], pack: int) -> int:
    return laid_out_tokens([row.prompt_ids for row in rows], [row.token_ids for row in rows], pack)
