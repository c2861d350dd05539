"""The ranks that see different data: gathering records, failing together, and which rank gets which groups."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from grrm.errors import UserError
from grrm.parallel.barrier import barrier

if TYPE_CHECKING:
    from grrm.paddlenlp_api.training import TrainingArguments

T = TypeVar("T")
# Limit for the exchange itself, once every rank has arrived.
EXCHANGE_S = 300.0


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Abort the process with the stacks of all threads when the block does not finish in time.

    A collective whose partner has died can block inside C++ where no Python exception arrives; a process that ends with
    a stack trace lets the launcher stop the others. There is one alarm per process: do not nest deadlines.
    """
    # A replaced sys.stderr, as in a notebook, may have no file descriptor.
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def gather_from_all(record: T, world_size: int, timeout_s: float = 1800.0) -> list[T]:
    """Every process's record, in rank order, on every process.

    Raises UserError when not all processes come within `timeout_s`.
    """
    if world_size <= 1:
        return [record]
    import paddle.distributed as dist

    barrier(world_size, timeout_s)
    gathered: list[T] = []
    with deadline(EXCHANGE_S):
        dist.all_gather_object(gathered, record)
    return gathered


@dataclass(frozen=True)
class DataRanks:
    """Number `rank` of the `size` ranks that see different data (data parallel x sharding).

    The `tensor_size` ranks that divide a model's layers (tensor ranks of a stage, stage after stage) see the same data;
    this process is number `tensor_rank` of them.
    """

    rank: int
    size: int
    world_size: int = 1
    timeout_s: float = 1800.0
    tensor_rank: int = 0
    tensor_size: int = 1

    @classmethod
    def of(cls, args: TrainingArguments, timeout_s: float = 1800.0) -> DataRanks:
        """Read the topology off PaddleNLP's training arguments."""
        tensor_size, n_stages = max(1, args.tensor_parallel_degree), max(1, args.pipeline_parallel_degree)
        data = (args.dataset_rank, args.dataset_world_size, max(1, args.world_size), timeout_s)
        in_stage = args.tensor_parallel_rank if tensor_size > 1 else 0
        stage = args.pipeline_parallel_rank if n_stages > 1 else 0
        return cls(*data, stage * tensor_size + in_stage, tensor_size * n_stages)

    def processes(self) -> DataRanks:
        """All processes of the job as ranks: tensor ranks too have data of their own where they do not train."""
        rank = self.rank * self.tensor_size + self.tensor_rank
        return DataRanks(rank, self.size * self.tensor_size, self.world_size, self.timeout_s)

    def gather(self, record: T) -> list[T]:
        """Every data rank's record, in rank order, on every process.

        Tensor ranks hold the same data; the first of each data rank speaks for it. Raises UserError when not all
        processes come within `timeout_s`.
        """
        by_rank: dict[int, T] = {}
        for rank, item in gather_from_all((self.rank, record), self.world_size, self.timeout_s):
            by_rank.setdefault(rank, item)
        return [by_rank[rank] for rank in range(self.size)]

    def share_of(self, items: Sequence[T]) -> Sequence[T]:
        """Every `size`-th of `items`, from this rank's number on."""
        return items[self.rank :: self.size]

    def gather_shares(self, results: Sequence[T]) -> list[T]:
        """The results of all ranks for their `share_of` the same items, in the order of these. A collective."""
        parts = self.gather(results)
        return [part[i] for i in range(max(map(len, parts))) for part in parts if i < len(part)]


def assign_groups(work_P: Sequence[int], n_ranks: int, balance: bool) -> list[list[int]]:
    """Group indices for each rank: contiguous slices, or balanced by `work_P` (tokens per group).

    Every rank gets the same number of groups, because ranks step in lockstep. Balancing is
    longest-processing-time-first into the least loaded rank that has room; ties go to the lower rank, so every rank
    computes the same answer. Raises UserError when the groups do not divide among the ranks.
    """
    n_groups = len(work_P)
    if n_groups % n_ranks:
        raise UserError(
            f"{n_groups} groups do not divide among {n_ranks} ranks: make global_mini_batch_size a multiple"
        )
    per_rank = n_groups // n_ranks
    if not balance:
        return [list(range(rank * per_rank, (rank + 1) * per_rank)) for rank in range(n_ranks)]
    assigned: list[list[int]] = [[] for _ in range(n_ranks)]
    loads = [0] * n_ranks
    for index in sorted(range(n_groups), key=lambda index: (-work_P[index], index)):
        rank = min(
            (rank for rank in range(n_ranks) if len(assigned[rank]) < per_rank), key=lambda rank: (loads[rank], rank)
        )
        assigned[rank].append(index)
        loads[rank] += work_P[index]
    return [sorted(indices) for indices in assigned]


class CollectiveFailure(UserError):
    """At least one rank failed at a named stage; every rank raises this with the same message."""


def run_together(
    stage: str,
    work: Callable[[], T],
    ranks: DataRanks,
    expected: tuple[type[Exception], ...],
    failure: type[Exception] = CollectiveFailure,
) -> T:
    """Run `work` on every rank; when it raises one of `expected` anywhere, raise one `failure` on every rank.

    Every rank's message is the same: the stage, the first rank that failed and what it said.
    The outcome is exchanged before anyone raises, so no rank is left waiting in a later collective. An exception
    outside `expected` is a defect: it propagates at once and the launcher ends the job.
    """
    result: T | None = None
    problem: str | None = None
    cause: Exception | None = None
    try:
        result = work()
    except expected as error:
        problem, cause = str(error), error
    problems = ranks.gather(problem)
    failed = [(rank, message) for rank, message in enumerate(problems) if message is not None]
    if failed:
        rank, message = failed[0]
        others = f" ({len(failed)} of {ranks.size} ranks failed)" if ranks.size > 1 else ""
        raise failure(f"{stage} failed on rank {rank}{others}: {message}") from cause
    return result  # type: ignore[return-value]
