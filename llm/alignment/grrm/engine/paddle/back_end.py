"""Which decoder and which sampler a model gets: C++ kernels, Paddle's fused operators, or its plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grrm.engine.paddle import cpu_sampling, gpu_sampling
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.plain_decoder import PlainDecoder
from grrm.engine.sampling import sample_tokens
from grrm.errors import UserError
from grrm.models import cpu_kernels

AnyDecoder: TypeAlias = PlainDecoder | CpuDecoder | GpuDecoder
Sampler: TypeAlias = Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]]


def choose_back_end(
    model: Any, *, use_kernels: bool, precision: str, max_packed_bytes: int, pass_tokens: int
) -> tuple[AnyDecoder, Sampler]:
    """The fastest decoder that runs `model` where its parameters are, and a sampler for its logits.

    Fused operators on a GPU, C++ kernels on the CPU, and plain operators for what neither runs, or without
    `use_kernels`. Raises UserError where `precision` is not "float32" and the C++ kernels do not run.
    """
    if use_kernels and precision == "float32" and GpuDecoder.unsupported_reason(model) is None:
        return GpuDecoder(model), gpu_sampling.sample_tokens
    sampler = cpu_sampling.sample_tokens if use_kernels and cpu_kernels.available() else sample_tokens
    unsupported_reason = CpuDecoder.unsupported_reason(model, precision) if use_kernels else "they are switched off"
    if unsupported_reason is None:
        options = {"max_packed_bytes": max_packed_bytes, "pass_tokens": pass_tokens}
        return CpuDecoder(model, precision=precision, **options), sampler
    if precision != "float32":
        raise UserError(f"precision {precision} needs the C++ kernels, but {unsupported_reason}: use float32.")
    return PlainDecoder(model), sampler
