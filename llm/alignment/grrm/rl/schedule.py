"""The schedule of a rollout's rows: which rank trains on which rows in which micro-batch of which optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.config import RLConfig
from grrm.config.batch_plan import BatchPlan
from grrm.models.packing import laid_out_tokens
from grrm.parallel.data_ranks import DataRanks, assign_groups
from grrm.rl.experience import pad_right
from grrm.rl.losses.aggregation import Denominators, count_denominators
from grrm.rl.records import Row


def schedule(
    groups: Sequence[Sequence[Row]], plan: BatchPlan, config: RLConfig, ranks: DataRanks
) -> tuple[list[list[list[Row]]], list[Denominators]]:
    """Split the rows of the global batch's groups into mini-batches, ranks' shares of them, and micro-batches.

    Returns `micro_batches[u][m]`, this rank's rows for micro-batch m of update u, and the `row_denominators` of each
    update. Mini-batches are split before ranks are assigned, so an update uses the same groups with any number of
    ranks.
    """
    size = plan.prompts_per_update
    updates: list[list[list[Row]]] = []
    denominators: list[Denominators] = []
    for start in range(0, len(groups), size):
        members = groups[start : start + size]
        work = [sum(row.length for row in rows) for rows in members]
        mine = assign_groups(work, ranks.size, config.balance_batch)[ranks.rank]
        # Groups of similar length share a micro-batch: less padding, same sums. A group's rows stay neighbours.
        mine.sort(key=lambda i: work[i])
        updates.append(micro_batches_of([row for i in mine for row in members[i]], plan, config.pack_tokens))
        denominators.append(row_denominators([row for rows in members for row in rows], config.max_dec_len))
    repeats = plan.updates_per_rollout // len(updates)
    return updates * repeats, denominators * repeats


def row_denominators(rows: Sequence[Row], longest: int) -> Denominators:
    """Count `rows` of one optimizer step on all ranks; responses have at most `longest` tokens."""
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
