"""Tensor and sequence parallelism of Paddle's fleet between processes on CPUs, whose transport is gloo.

Fleet's parallel layers call communication operators that exist for GPUs alone, and form process groups in a way that
gloo gets wrong. `support_gloo` gives the operators a second form for tensors of the CPU, in collectives that gloo has,
and every group of gloo a rendezvous of its own; GPUs are not affected. No other module works around gloo's gaps.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import wraps
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.autograd import PyLayer
from paddle.base import core
from paddle.distributed import collective, parallel
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.meta_parallel import tensor_parallel
from paddle.distributed.fleet.utils import sequence_parallel_utils

from grrm.parallel.tensor_ranks import gather_parts, look_up_part, tensor_group

CONNECT_S = 300  # for all members of a group to find each other

_installed = False
_stores: list[Any] = []  # groups use theirs as long as they live


def support_gloo() -> None:
    """Let fleet's tensor and sequence parallel layers run on CPUs; call it before the process group is started."""
    global _installed
    if _installed:
        return
    _installed = True
    operators: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (mp_ops, "_c_identity", _identity),
        (collective, "_c_identity", _identity),
        (mp_ops, "_mp_allreduce", _sum_over_group),
        (mp_ops, "_c_lookup_table", _look_up),
        (sequence_parallel_utils, "all_gather", _gather_rows),
        (sequence_parallel_utils, "reduce_scatter", _sum_and_scatter_rows),
    )
    for module, name, on_cpu in operators:
        setattr(module, name, _by_device(getattr(module, name), on_cpu))
    setattr(parallel.ParallelEnv, "_device_id", 0)  # noqa: B010  # pipelines ask for it, and CPUs have none
    setattr(tensor_parallel, "broadcast_input_data", _keep_inputs)  # noqa: B010  # a module of Paddle's
    setattr(collective, "_new_process_group_impl", _with_own_store(collective._new_process_group_impl))  # noqa: B010


def _by_device(stock: Callable[..., Any], on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that is `on_cpu` for tensors of the CPU."""

    @wraps(stock)
    def operator(tensor: paddle.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (on_cpu if tensor.place.is_cpu_place() else stock)(tensor, *args, **kwargs)

    return operator


def _keep_inputs(hcg: Any, *inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
    """In place of a broadcast of inputs among tensor ranks, for GPUs alone: each makes the same batch."""
    return inputs, kwargs


def _same_memory(x: paddle.Tensor) -> paddle.Tensor:
    """A tensor of its own on the numbers of `x`: layers keep their inputs, and copies of them would add up."""
    other = paddle.empty([0], dtype=x.dtype)
    other.get_tensor()._share_data_with(x.get_tensor())
    return other


class _Identity(PyLayer):
    """x; the gradient is summed over the group, whose members each have a part of it."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, group: Any) -> paddle.Tensor:
        ctx.group = group
        return _same_memory(x)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        summed = gradient.clone()
        dist.all_reduce(summed, group=ctx.group)
        return summed


class _Sum(PyLayer):
    """The sum over the group, written over x; the gradient goes to each member as it is."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, group: Any) -> paddle.Tensor:
        dist.all_reduce(x, group=group)
        return _same_memory(x)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return gradient.clone()


def _identity(x: paddle.Tensor, group: Any = None, skip_c_identity_dynamic: bool = False) -> paddle.Tensor:
    return x if skip_c_identity_dynamic else _Identity.apply(x, group)


def _sum_over_group(x: paddle.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, **how: Any) -> paddle.Tensor:
    return _Sum.apply(x, group)


def _look_up(
    table_VH: paddle.Tensor, tokens: paddle.Tensor, start_index: int = 0, vocab_size: int = -1, name: str | None = None
) -> paddle.Tensor:
    return look_up_part(table_VH, tokens, start_index)


def _gather_rows(part: paddle.Tensor) -> paddle.Tensor:
    return paddle.concat(gather_parts(part))


def _sum_and_scatter_rows(rows: paddle.Tensor) -> paddle.Tensor:
    group, summed = tensor_group(), rows.clone()
    dist.all_reduce(summed, group=group)
    size = summed.shape[0] // group.nranks
    return summed[group.rank * size : (group.rank + 1) * size]


def _with_own_store(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Process groups of gloo with a key-value store each.

    Gloo's members look each other up by their rank in the group alone, so that groups that share a store take the
    addresses of one another for their own, and fail or hang.
    """

    @wraps(stock)
    def new_process_group(backend: str, store: Any, rank: int, world_size: int, *args: Any, **kwargs: Any) -> Any:
        group_id = kwargs.get("group_id", 0)
        if backend == "gloo" and group_id and world_size > 1:
            _stores.append(_own_store(store, f"grrm/gloo/{group_id}", rank, world_size))
            store = _stores[-1]
        return stock(backend, store, rank, world_size, *args, **kwargs)

    return new_process_group


def _own_store(store: Any, key: str, rank: int, world_size: int) -> Any:
    """A store of this group; its first member serves it, and tells the others in the job's store where."""
    make_store: Any = core.TCPStore
    if rank:
        store.wait(key)
        host, _, port = bytes(store.get(key)).decode().rpartition(":")
        return make_store(host, int(port), False, world_size, CONNECT_S)
    host = collective._get_global_env().current_endpoint.rpartition(":")[0] or "127.0.0.1"
    with socket.create_server((host, 0)) as probe:  # the store takes no port of the system's choice
        port = probe.getsockname()[1]
    store.set(key, f"{host}:{port}".encode())  # before the store is made, which returns when all have come
    return make_store(host, port, True, world_size, CONNECT_S)
