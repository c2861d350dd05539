"""Response tokens of a padded batch as flat indices, so that only they meet the LM head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle


@dataclass(slots=True)
class TokenIndex:
    """Where the response tokens of a [B, T] batch sit, flattened (N) and back to [B, R].

    `positions_N` are indices into the [B*T] hidden states that predict `labels_N`; `scatter_BR` indexes an [N + 1]
    vector whose last element is the padding value; `lengths_B` are response tokens of every row. Packed rows
    (packing.py) need `position_ids` [B, T] and `attention_ranges_3BT` (attention_ranges.py); without them rows are
    plain causal sequences.
    """

    input_ids: paddle.Tensor
    positions_N: paddle.Tensor
    labels_N: paddle.Tensor
    scatter_BR: paddle.Tensor
    lengths_B: list[int]
    position_ids: paddle.Tensor | None = None
    attention_ranges_3BT: paddle.Tensor | None = None
    prompt_starts_B: np.ndarray | None = None

    def model_inputs(self) -> dict[str, Any]:
        """Keyword arguments of the policy's scoring forward."""
        return {
            "input_ids": self.input_ids,
            "position_ids": self.position_ids,
            "attention_ranges_3BT": self.attention_ranges_3BT,
            "positions_N": self.positions_N,
            "labels_N": self.labels_N,
        }

    def to_rows(self, values_N: paddle.Tensor, rows: slice | None = None) -> paddle.Tensor:
        """[N] -> [B, R], zeros where a row has no token. Differentiable.

        With `rows`, values are of the tokens of those rows only, and R is the length of the longest of them.
        """
        scatter_BR = self.scatter_BR
        if rows is not None:
            scatter_BR = paddle.to_tensor(scatter_index(self.lengths_B[rows]))
        padded = paddle.concat([values_N, paddle.zeros([1], dtype=values_N.dtype)])
        return paddle.gather(padded, scatter_BR.flatten()).reshape(scatter_BR.shape)


def index_tokens(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int) -> TokenIndex:
    """Lay out prompt + response rows, right-padded. Every prompt needs at least one token (it predicts the first)."""
    lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    width = max(lengths)
    ids_BT = np.full((len(prompts), width), pad_id, dtype=np.int64)
    positions: list[np.ndarray] = []
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        start = len(prompt)
        ids_BT[row, :start] = prompt
        ids_BT[row, start : start + len(response)] = response
        positions.append(row * width + start - 1 + np.arange(len(response)))
    labels_N = np.concatenate([np.asarray(response, dtype=np.int64) for response in responses])
    lengths_B = [len(response) for response in responses]
    return TokenIndex(
        paddle.to_tensor(ids_BT),
        paddle.to_tensor(np.concatenate(positions).astype(np.int64)),
        paddle.to_tensor(labels_N),
        paddle.to_tensor(scatter_index(lengths_B)),
        lengths_B,
    )


def scatter_index(lengths: Sequence[int]) -> np.ndarray:
    """[B, R] indices into the flat tokens of rows with these lengths; sum(lengths) where a row has no token."""
    ends = np.cumsum(lengths)
    columns_R = np.arange(max(lengths))
    index_BR = (ends - np.asarray(lengths))[:, None] + columns_R[None, :]
    return np.where(columns_R[None, :] < np.asarray(lengths)[:, None], index_BR, ends[-1]).astype(np.int64)
