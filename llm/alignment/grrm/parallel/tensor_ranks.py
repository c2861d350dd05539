"""The ranks that share the layers of one model, and what their parts of a tensor are together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle.distributed import fleet

if TYPE_CHECKING:
    from grrm.paddlenlp_api.training import TrainingArguments

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorRanks:
    """Number `rank` of the `size` processes among which each layer of a model is divided (tensor parallelism).

    With `sequence_parallel` they also divide the tokens of what lies between those layers.
    """

    rank: int = 0
    size: int = 1
    sequence_parallel: bool = False

    @classmethod
    def of(cls, args: TrainingArguments) -> TensorRanks:
        """Read the topology off PaddleNLP's training arguments."""
        size = max(args.tensor_parallel_degree, 1)
        return cls(args.tensor_parallel_rank, size, args.sequence_parallel) if size > 1 else cls()

    def model_settings(self) -> dict[str, Any]:
        """Settings of a model's config that this process replaces to load and run its part."""
        if self.size == 1:
            return {}
        return {
            "tensor_parallel_degree": self.size,
            "tensor_parallel_rank": self.rank,
            "tensor_parallel_output": False,
            "sequence_parallel": self.sequence_parallel,
        }


def tensor_group() -> Any:
    """The process group of this process's tensor ranks."""
    return fleet.get_hybrid_communicate_group().get_model_parallel_group()


def gather_parts(part: paddle.Tensor) -> list[paddle.Tensor]:
    """Every tensor rank's part, in their order. A collective of equal shapes, without gradient."""
    parts: list[paddle.Tensor] = []
    dist.all_gather(parts, part.detach(), group=tensor_group())
    return parts


def sum_parts(part: paddle.Tensor) -> paddle.Tensor:
    """The sum of every tensor rank's part, written over it. A collective of equal shapes, without gradient."""
    dist.all_reduce(part, group=tensor_group())
    return part


def look_up_part(table_VH: paddle.Tensor, tokens: paddle.Tensor, first: int) -> paddle.Tensor:
    """Rows of the part [V, H] of an embedding that begins with token `first`; zeros for tokens of other parts."""
    local = tokens - first
    is_local = (local >= 0) & (local < table_VH.shape[0])
    rows = F.embedding(paddle.where(is_local, local, paddle.zeros_like(local)), table_VH)
    return rows * is_local.unsqueeze(-1).astype(rows.dtype)


def gather_records(record: T) -> list[T]:
    """Every tensor rank's record, in their order. A collective."""
    records: list[T] = []
    dist.all_gather_object(records, record, group=tensor_group())
    return records


def gathered_parameter(parameter: paddle.Tensor) -> paddle.Tensor:
    """The parameter that tensor ranks hold parts of, put together; itself where each holds all of it. A collective."""
    if not parameter.is_distributed:
        return parameter.detach()
    return paddle.concat(gather_parts(parameter), axis=parameter.split_axis)


def own_part(complete: paddle.Tensor, parameter: paddle.Tensor) -> paddle.Tensor:
    """Return this process's part of a complete tensor, to be stored in `parameter`."""
    if not parameter.is_distributed:
        return complete.detach()
    group = tensor_group()
    return paddle.split(complete.detach(), group.nranks, axis=parameter.split_axis)[group.rank]
