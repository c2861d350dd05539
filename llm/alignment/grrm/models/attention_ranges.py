"""Visibility between the tokens of a packed row: two ranges per token, and the equivalent dense mask.

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


def flashmask_ends(attention_ranges_3BT: paddle.Tensor) -> paddle.Tensor:
    """[B, T] int32: one past the last token that sees each token, FlashMask's form of a causal mask.

    That says all where a prompt comes before what answers it and an answer sees itself: those who see a token follow it
    without a gap. Padding sees itself.
    """
    begin_BT, end_BT, own_BT = (attention_ranges_3BT[i].astype("int64") for i in range(3))
    n_rows, length = begin_BT.shape
    behind_BT = (paddle.arange(length) + 1).expand([n_rows, length])
    # The last token of each segment, and the last that reads each prompt, at the token where either begins.
    readers_BT = paddle.where(end_BT > begin_BT, begin_BT, paddle.full_like(begin_BT, length))
    last_BT = paddle.zeros([n_rows, length + 1], dtype="int64")
    for starts_BT in (own_BT, readers_BT):
        last_BT = paddle.put_along_axis(last_BT, starts_BT, behind_BT, axis=1, reduce="amax")
    ends_BT = paddle.take_along_axis(last_BT, own_BT, axis=1)
    return paddle.where(own_BT < behind_BT, ends_BT, behind_BT).astype("int32")
