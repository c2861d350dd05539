"""The weights of one Qwen2 layer as NumPy arrays, and the few shapes of attention that a judge is grown from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_PARTS = {
    "self_attn.q_proj": "weight bias",
    "self_attn.k_proj": "weight bias",
    "self_attn.v_proj": "weight bias",
    "self_attn.o_proj": "weight",
    "mlp.gate_proj": "weight",
    "mlp.up_proj": "weight",
    "mlp.down_proj": "weight",
    "input_layernorm": "weight",
    "post_attention_layernorm": "weight",
}
_POSITION_PAIRS = 8  # the fastest of the rotary embedding, which tell neighbours apart
_POSITION_LOGIT = 100.0  # of the position looked for; all others have at least 6 less, with heads of 16 or more


class Layer:
    """Weights `[in, out]` of a layer in which every head has keys of its own, by their names without the layer's."""

    def __init__(self, weights: Mapping[str, np.ndarray], head_size: int, rope_theta: float) -> None:
        self._weights = {name: np.array(value, dtype=np.float32) for name, value in weights.items()}
        self.head_size = head_size
        self.frequencies = rope_theta ** (-2.0 * np.arange(head_size // 2) / head_size)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._weights[name]

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self._weights[name][...] = value

    def named(self) -> Mapping[str, np.ndarray]:
        """All weights by name."""
        return self._weights

    def clear(self) -> None:
        """Set everything to zero."""
        for value in self._weights.values():
            value[...] = 0

    def protect(self, dimensions: np.ndarray) -> None:
        """Let nothing of this layer write to these dimensions, yet."""
        self["self_attn.o_proj.weight"][:, dimensions] = 0
        self["mlp.down_proj.weight"][:, dimensions] = 0

    def columns(self, head: int) -> np.ndarray:
        """The columns of queries, keys and values that are a head's."""
        return head * self.head_size + np.arange(self.head_size)

    def empty_heads(self, heads: Sequence[int]) -> None:
        """Let heads see everything alike, read nothing and write nothing."""
        for head in heads:
            for part in "qkv":
                self[f"self_attn.{part}_proj.weight"][:, self.columns(head)] = 0
                self[f"self_attn.{part}_proj.bias"][self.columns(head)] = 0
            self["self_attn.o_proj.weight"][self.columns(head)] = 0

    def empty_units(self, units: np.ndarray | slice | int) -> None:
        """Let units of the MLP read nothing and write nothing."""
        for part in ("gate", "up"):
            self[f"mlp.{part}_proj.weight"][:, units] = 0
        self["mlp.down_proj.weight"][units] = 0

    def product_units(self, first: int, n_products: int) -> list[tuple[np.ndarray, int]]:
        """Empty units for that many products, and the sign of what their gate and up read: two for each.

        SwiGLU then multiplies exactly: silu(a) b + silu(-a) (-b) = a b, as silu(a) + silu(-a) (-1) = a.
        """
        units = first + np.arange(2 * n_products)
        self.empty_units(units)
        return [(units[:n_products], 1), (units[n_products:], -1)]

    def move(self, first_head: int, distance: int, reads: np.ndarray, writes: np.ndarray) -> int:
        """Add to `writes` what `reads` (weights `[dimension, value]`) gives of the token `distance` places back.

        Takes as many empty heads from `first_head` on as the values need, and returns the first that it leaves. With
        rotary embedding, biases of a pair of dimensions of frequency f, k = (a, 0) and q = (a cos fd, -a sin fd), add
        a^2 cos(f (x - d)) to the logit of a token x places back, whatever the tokens are.
        """
        half = self.head_size // 2
        first = np.arange(min(_POSITION_PAIRS, half))
        heads = range(first_head, first_head - (-reads.shape[1] // self.head_size))
        self.empty_heads(heads)
        amplitude = self.amplitude(_POSITION_LOGIT / len(first))
        turn = self.frequencies[first] * distance
        for head in heads:
            start = head * self.head_size
            self["self_attn.k_proj.bias"][start + first] = amplitude
            self["self_attn.q_proj.bias"][start + first] = amplitude * np.cos(turn)
            self["self_attn.q_proj.bias"][start + half + first] = -amplitude * np.sin(turn)
        values = first_head * self.head_size + np.arange(reads.shape[1])
        self["self_attn.v_proj.weight"][:, values] = reads
        self["self_attn.o_proj.weight"][values, writes] = 1
        return heads.stop

    def amplitude(self, logit: float) -> float:
        """What a query and a key are both to be, in one dimension, for this logit."""
        return float((logit * self.head_size**0.5) ** 0.5)

    def still_pairs(self, n_pairs: int) -> np.ndarray:
        """First dimensions in a head of the pairs that rotary embedding turns least, the stillest first."""
        return np.arange(self.head_size // 2 - n_pairs, self.head_size // 2)[::-1]


def layer_of(state: Mapping[str, Any], prefix: str, head_size: int, rope_theta: float) -> Layer:
    """The layer whose weights have names with `prefix` in a model's state."""
    names = [f"{part}.{kind}" for part, kinds in _PARTS.items() for kind in kinds.split()]
    return Layer({name: state[prefix + name].numpy() for name in names}, head_size, rope_theta)
