"""Which tokens of a packed row see each other: two ranges per token, and the dense mask that says the same.

`attention_ranges_3BT` int32: token i sees tokens visible[0] <= j < visible[1] (the prompt it answers; may be empty) and
visible[2] <= j <= i (its own segment). visible[2] > i is padding, which sees nothing.
"""

from __future__ import annotations

import paddle


def dense_mask(attention_ranges_3BT: paddle.Tensor) -> paddle.Tensor:
    """[B, T, T] bool: row i, column j is True where token i sees token j. Padding sees itself, which harms nobody."""
    length = attention_ranges_3BT.shape[2]
    columns_T = paddle.arange(length, dtype="int32").reshape([1, 1, length])
    rows_T = columns_T.reshape([1, length, 1])
    begin_BT1, end_BT1, own_BT1 = (attention_ranges_3BT[i].unsqueeze(-1) for i in range(3))
    prompt_BTT = (columns_T >= begin_BT1) & (columns_T < end_BT1)
    own_BTT = (columns_T >= paddle.minimum(own_BT1, rows_T)) & (columns_T <= rows_T)
    return prompt_BTT | own_BTT


def additive_mask(attention_ranges_3BT: paddle.Tensor) -> paddle.Tensor:
    """[B, 1, T, T] float32: 0 where a token is seen, the lowest number elsewhere."""
    hidden = paddle.full([], paddle.finfo(paddle.float32).min)
    return paddle.where(dense_mask(attention_ranges_3BT), paddle.zeros([]), hidden).unsqueeze(1)
