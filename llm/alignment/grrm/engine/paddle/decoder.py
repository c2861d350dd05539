"""Interface between the scheduler and the decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grrm.engine.paddle.weights import DecoderWeights

# (logits_SV, params, uniforms_S, n_generated_S, seen_SV, *, completions) -> tokens_S, logprobs_S: see
# grrm.engine.sampling
Sampler: TypeAlias = Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]]
OnLogits: TypeAlias = Callable[[int, Any], None]  # the first position, and the logits_NV of it and those after it
_LOGITS_BYTES = 32 << 20


def positions_of_a_part(vocab_size: int) -> int:
    """Positions of a prompt whose logits exist at one time: a multiple of 16 rows, within 32 MiB if that allows any."""
    return int(max(_LOGITS_BYTES // (4 * vocab_size) // 16, 1) * 16)


class Decoder(Protocol):
    """A forward pass over a model's parameters, with a KV cache of its own kind."""

    @property
    def weights(self) -> DecoderWeights:
        """The model's parameters and sizes."""

    @property
    def computes_padding(self) -> bool:
        """True if free slots and padding of short prompts are computed like real tokens."""

    def new_cache(self, n_slots: int, max_len: int, max_bytes: int | None = None) -> Any:
        """A cache of up to `max_bytes` for `n_slots` sequences of at most `max_len` tokens, or for its own `n_slots`.

        If it has `tables` its blocks are allocated as sequences grow, and may be too few for all of them.
        """

    def cache_bytes(self, max_len: int) -> int:
        """Size of one slot of `max_len` positions over all layers."""

    def prefill(
        self,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        cache: Any,
        slots_S: NDArray[np.int64],
        sources_S: NDArray[np.int64],
        on_logits: OnLogits | None = None,
    ) -> Any:
        """Run right-padded prompts, put prompt `sources_S[i]` into slot `slots_S[i]`, return last-token logits_PV.

        `on_logits`, of a single prompt, is called with the logits of all its positions, in order and in parts.
        """

    def decode(
        self, slots_S: NDArray[np.int64], tokens_S: NDArray[np.int64], positions_S: NDArray[np.int64], cache: Any
    ) -> Any:
        """Feed one token to each of `slots_S` at its position, return the next token's logits_SV."""
