"""The tokens that a policy is trained on, and the padding beside them."""

from __future__ import annotations

from typing import NamedTuple

import paddle


class Used(NamedTuple):
    """Tokens without padding, and with it; a prompt that several responses share counts once, as it is computed."""

    n_tokens: int
    n_laid_out: int


class TokenUse:
    """Counts what goes through a policy's forward passes with gradients, without waiting for the device."""

    def __init__(self) -> None:
        self._parts: list[paddle.Tensor] = []
        self._n_laid_out = 0

    @paddle.no_grad()
    def add(
        self, input_ids: paddle.Tensor, positions_N: paddle.Tensor, attention_ranges_3BT: paddle.Tensor | None
    ) -> None:
        """Add one batch of packed rows, or of padded ones, which have no ranges, with a response in each."""
        n_rows, length = input_ids.shape
        self._n_laid_out += n_rows * length
        if attention_ranges_3BT is not None:
            # The own segment of padding begins behind it.
            self._parts.append((attention_ranges_3BT[2] <= paddle.arange(length, dtype="int32")).sum())
            return
        rows_N = positions_N // length
        is_last_N = paddle.concat([rows_N[1:], paddle.full([1], n_rows, "int64")]) != rows_N
        ends_N = positions_N % length + 2  # behind the token that a position predicts
        self._parts.append((ends_N * is_last_N.astype("int64")).sum())

    def take(self) -> Used:
        """What was added since the last call."""
        used = Used(sum(map(int, self._parts)), self._n_laid_out)
        self._parts, self._n_laid_out = [], 0
        return used
