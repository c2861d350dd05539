"""The ranks that each have a stage of one model's layers (pipeline parallelism), and what goes between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import paddle
import paddle.distributed as dist
from paddle.distributed import fleet

T = TypeVar("T")


def pipeline_group() -> Any:
    """The process group of the stages of this process's model, first to last."""
    return fleet.get_hybrid_communicate_group().get_pipe_parallel_group()


def of_last_stage(record: T) -> T:
    """The last stage's record, on every stage. A collective."""
    records: list[T] = []
    dist.all_gather_object(records, record, group=pipeline_group())
    return records[-1]


def stages_with(names: Iterable[str]) -> dict[str, int]:
    """The first stage that has each of the names that this and the other stages have. A collective."""
    by_stage: list[list[str]] = []
    dist.all_gather_object(by_stage, list(names), group=pipeline_group())
    first: dict[str, int] = {}
    for stage, of_stage in enumerate(by_stage):
        for name in of_stage:
            first.setdefault(name, stage)
    return first


def from_stage(stage: int, tensor: paddle.Tensor | None, shape: Sequence[int], dtype: Any) -> paddle.Tensor:
    """The tensor of a stage, on every stage; the others need not have one. A collective."""
    group = pipeline_group()
    if group.rank != stage or tensor is None:
        tensor = paddle.empty(list(shape), dtype)
    dist.broadcast(tensor, src=group.ranks[stage], group=group)
    return tensor


def receive(shape: Sequence[int], dtype: Any) -> paddle.Tensor:
    """Wait for a tensor that the stage before this one sends; before the first comes the last."""
    group = pipeline_group()
    tensor = paddle.empty(list(shape), dtype)
    dist.recv(tensor, src=group.ranks[group.rank - 1], group=group)
    return tensor


def send(tensor: paddle.Tensor) -> None:
    """Send to the stage behind this one; behind the last comes the first."""
    group = pipeline_group()
    dist.send(tensor, dst=group.ranks[(group.rank + 1) % group.nranks], group=group)
