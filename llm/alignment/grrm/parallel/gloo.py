"""Tensor, sequence and pipeline parallelism of Paddle's fleet between processes on CPUs, whose transport is gloo.

Fleet's parallel layers call communication operators that exist for GPUs alone, and form process groups in a way that
gloo gets wrong. `support_gloo` gives the operators a second form for tensors of the CPU, in collectives that gloo has,
every group of gloo a rendezvous of its own, and every message a group of its two ends.

On GPUs the one change is that inputs, which each tensor rank makes alike, are not broadcast. No other module works
around gloo's gaps.
"""

from __future__ import annotations

import socket
import sys
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
_links: dict[int, Any] = {}  # process groups of one sender and one receiver


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
    for name, sends in (("send", True), ("recv", False)):
        module = sys.modules[f"paddle.distributed.communication.stream.{name}"]  # not the function
        setattr(module, f"_{name}_in_dygraph", _over_link(getattr(module, f"_{name}_in_dygraph"), sends))


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


def _over_link(stock: Callable[..., Any], sends: bool) -> Callable[..., Any]:
    """Send to, or receive from, a member of a group of gloo over a process group of the two, made on first use.

    Gloo matches messages by their number among all that a member has sent and received. Both sides of a message agree
    on it only where two members talk, and in one direction.
    """

    @wraps(stock)
    def operator(tensor: paddle.Tensor, peer: int, group: Any, *how: Any) -> Any:
        if group.backend.lower() != "gloo":
            return stock(tensor, peer, group, *how)
        link = _link(group, *((group.rank, peer) if sends else (peer, group.rank)))
        task = link.send(tensor, 1, True) if sends else link.recv(tensor, 0, True)
        task.wait()
        return task

    return operator


def _link(group: Any, sender: int, receiver: int) -> Any:
    """The process group of a sender, its rank 0, and a receiver, its rank 1; both are ranks of `group`."""
    link_id = (group.id + 1) * 10**6 + sender * 1000 + receiver  # above those that Paddle gives, and the same for both
    if link_id not in _links:
        rank, store = (sender, receiver).index(group.rank), collective._default_store
        _links[link_id] = collective._new_process_group_impl("gloo", store, rank, 2, None, None, group_id=link_id)
    return _links[link_id]


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
