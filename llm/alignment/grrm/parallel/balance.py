"""Spreading whole groups over ranks: equal counts, near-equal work, no group ever split."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.errors import UserError


def assign_groups(work_G: Sequence[int], n_ranks: int, balance: bool) -> list[list[int]]:
    """Group indices for each rank: contiguous slices, or balanced by `work_G` (tokens per group).

    Every rank gets the same number of groups, because ranks step in lockstep. Balancing is
    longest-processing-time-first into the least loaded rank that has room; ties go to the lower rank, so every rank
    computes the same answer. Raises UserError when the groups do not divide among the ranks.
    """
    n_groups = len(work_G)
    if n_groups % n_ranks:
        raise UserError(
            f"{n_groups} groups do not divide among {n_ranks} ranks: make global_mini_batch_size a multiple"
        )
    room = n_groups // n_ranks
    if not balance:
        return [list(range(rank * room, (rank + 1) * room)) for rank in range(n_ranks)]
    assigned: list[list[int]] = [[] for _ in range(n_ranks)]
    loads = [0] * n_ranks
    for index in sorted(range(n_groups), key=lambda index: (-work_G[index], index)):
        rank = min(
            (rank for rank in range(n_ranks) if len(assigned[rank]) < room), key=lambda rank: (loads[rank], rank)
        )
        assigned[rank].append(index)
        loads[rank] += work_G[index]
    return [sorted(indices) for indices in assigned]
