"""Which decoder and which sampler a model gets: C++ kernels, Paddle's fused operators, or its plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grrm.engine import fused_sampling, native, native_sampling
from grrm.engine.decoder import Decoder
from grrm.engine.fused_decoder import FusedDecoder
from grrm.engine.native_decoder import NativeDecoder
from grrm.engine.sampling import sample_tokens
from grrm.errors import UserError

AnyDecoder: TypeAlias = Decoder | NativeDecoder | FusedDecoder
Sampler: TypeAlias = Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]]


def choose_back_end(
    model: Any, *, use_kernels: bool, precision: str, max_packed_bytes: int, pass_tokens: int
) -> tuple[AnyDecoder, Sampler]:
    """The fastest decoder that runs `model` where its parameters are, and a sampler for its logits.

    Fused operators on a GPU, C++ kernels on the CPU, and plain operators for what neither runs, or without
    `use_kernels`. Raises UserError where `precision` is not "float32" and the C++ kernels do not run.
    """
    if use_kernels and precision == "float32" and FusedDecoder.obstacle(model) is None:
        return FusedDecoder(model), fused_sampling.sample_tokens
    sampler = native_sampling.sample_tokens if use_kernels and native.available() else sample_tokens
    obstacle = NativeDecoder.obstacle(model, precision) if use_kernels else "they are switched off"
    if obstacle is None:
        options = {"max_packed_bytes": max_packed_bytes, "pass_tokens": pass_tokens}
        return NativeDecoder(model, precision=precision, **options), sampler
    if precision != "float32":
        raise UserError(f"precision {precision} needs the C++ kernels, but {obstacle}: use float32.")
    return Decoder(model), sampler
