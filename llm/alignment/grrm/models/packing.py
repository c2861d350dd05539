"""Prompts and responses as the rows of a batch, and the positions of their response tokens.

A pack is a prompt followed by its responses. Every response continues the prompt's positions and sees the prompt and
itself only, so hidden states, losses and gradients equal those of separate rows. The prompt, most of a translation row,
is computed once instead of once per sample. Several packs fill up a row, which leaves little padding.

`attention_ranges_3BT` int32: token i sees tokens visible[0] <= j < visible[1] (the prompt it answers; may be empty) and
visible[2] <= j <= i (its own segment). visible[2] > i is padding, which sees nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray


@dataclass(slots=True)
class PackedTokens:
    """Rows of a batch: [B, T] model inputs, and their N response tokens in the order of the R responses.

    Packed rows need `position_ids` [B, T] and `attention_ranges_3BT`; without them rows are plain
    causal sequences.

    positions_N: indices into the [B*T] hidden states that predict `labels_N`.
    lengths_R: tokens of every response.
    own_positions_N: positions of the tokens themselves, if all of them are in the input.
    """

    input_ids: paddle.Tensor
    positions_N: paddle.Tensor
    labels_N: paddle.Tensor
    lengths_R: list[int]
    position_ids: paddle.Tensor | None = None
    attention_ranges_3BT: paddle.Tensor | None = None
    own_positions_N: paddle.Tensor | None = None

    def model_inputs(self) -> dict[str, Any]:
        """Keyword arguments of the policy's forward that returns hidden states of the response tokens."""
        return {
            "input_ids": self.input_ids,
            "position_ids": self.position_ids,
            "attention_ranges_3BT": self.attention_ranges_3BT,
            "positions_N": self.positions_N,
        }

    def to_rows(self, values_N: paddle.Tensor, rows: slice | None = None) -> paddle.Tensor:
        """[N] -> [R, T], zeros where a response has no token. Differentiable.

        With `rows`, values are of the tokens of those responses only, and T is the length of the longest of them.
        """
        scatter_RT = paddle.to_tensor(scatter_index(self.lengths_R[rows or slice(None)]))
        padded = paddle.concat([values_N, paddle.zeros([1], dtype=values_N.dtype)])
        return paddle.gather(padded, scatter_RT.flatten()).reshape(scatter_RT.shape)


def lay_out(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int, pack_tokens: int
) -> PackedTokens:
    """Packed rows of at most `pack_tokens` tokens where that is above 0, else one row per response."""
    if pack_tokens > 0:
        return pack_rows(prompts, responses, pad_id, pack_tokens, row_tokens=pack_tokens)
    return pad_rows(prompts, responses, pad_id)


def laid_out_tokens(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pack_tokens: int) -> int:
    """Tokens of the batch that `lay_out` makes of these, padding included."""
    if pack_tokens <= 0:
        return len(prompts) * max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    n_rows, width = _choose_width(_packs(prompts, [response[:-1] for response in responses], pack_tokens), pack_tokens)
    return n_rows * width


def pad_rows(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int) -> PackedTokens:
    """Lay out prompt + response rows, right-padded. Every prompt needs at least one token (it predicts the first)."""
    lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    width = max(lengths)
    ids_BT = np.full((len(prompts), width), pad_id, dtype=np.int64)
    positions: list[NDArray[Any]] = []
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        start = len(prompt)
        ids_BT[row, :start] = prompt
        ids_BT[row, start : start + len(response)] = response
        positions.append(row * width + start - 1 + np.arange(len(response)))
    labels_N = np.concatenate([np.asarray(response, dtype=np.int64) for response in responses])
    return PackedTokens(
        paddle.to_tensor(ids_BT),
        paddle.to_tensor(np.concatenate(positions).astype(np.int64)),
        paddle.to_tensor(labels_N),
        [len(response) for response in responses],
    )


def scatter_index(lengths: Sequence[int]) -> NDArray[Any]:
    """[R, T] indices into the flat tokens of responses of these lengths; sum(lengths) where there is no token."""
    ends_R = np.cumsum(lengths)
    columns_T = np.arange(max(lengths))
    index_RT = (ends_R - np.asarray(lengths))[:, None] + columns_T[None, :]
    return np.where(columns_T[None, :] < np.asarray(lengths)[:, None], index_RT, ends_R[-1]).astype(np.int64)


@dataclass(slots=True)
class _Pack:
    """A prompt, the rows it serves by their numbers, and where it lies in the batch."""

    prompt: Sequence[int]
    members: list[int] = field(default_factory=list)
    n_tokens: int = 0
    row: int = 0
    start: int = 0


def pack_rows(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    max_tokens: int,
    row_tokens: int = 0,
    keep_last: bool = False,
) -> PackedTokens:
    """Lay out rows with neighbours of equal prompt packed together.

    Packs share rows, which are as long as the longest pack, or up to `row_tokens` where that leaves less padding.
    Labels keep the order of the responses.

    Args:
        prompts: token ids of the prompt of each response.
        responses: token ids.
        pad_id: fills the rows up.
        max_tokens: length of a pack at most, except for a single response that is longer with its prompt.
        row_tokens: length of a row at most.
        keep_last: keep each response's last token, which predicts nothing, for its hidden state.
    """
    inputs = responses if keep_last else [response[:-1] for response in responses]
    packs = _packs(prompts, inputs, max_tokens)
    n_rows, width = _choose_width(packs, row_tokens)
    ids_BT = np.full((n_rows, width), pad_id, dtype=np.int64)
    positions_BT = np.zeros((n_rows, width), dtype=np.int64)
    attention_ranges_3BT = np.zeros((3, n_rows, width), dtype=np.int32)
    attention_ranges_3BT[2] = np.arange(width) + 1  # padding, until a pack is put there
    predictors: list[NDArray[Any]] = []
    own: list[NDArray[Any]] = []
    for pack in packs:
        span = slice(pack.start, pack.start + pack.n_tokens)
        parts = [pack.prompt, *(inputs[member] for member in pack.members)]
        ids_BT[pack.row, span] = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        positions_BT[pack.row, span] = _positions(parts)
        attention_ranges_3BT[:, pack.row, span] = _visible(pack.start, [len(part) for part in parts])
        first = pack.row * width + pack.start
        lengths = [len(responses[member]) for member in pack.members]
        predictors += _predictors(first, len(pack.prompt), lengths, without_last=not keep_last)
        own.append(np.arange(first + len(pack.prompt), first + pack.n_tokens))
    return PackedTokens(
        input_ids=paddle.to_tensor(ids_BT),
        positions_N=paddle.to_tensor(np.concatenate(predictors).astype(np.int64)),
        labels_N=paddle.to_tensor(np.concatenate([np.asarray(response, dtype=np.int64) for response in responses])),
        lengths_R=[len(response) for response in responses],
        position_ids=paddle.to_tensor(positions_BT),
        attention_ranges_3BT=paddle.to_tensor(attention_ranges_3BT),
        own_positions_N=paddle.to_tensor(np.concatenate(own).astype(np.int64)) if keep_last else None,
    )


def _packs(prompts: Sequence[Sequence[int]], inputs: Sequence[Sequence[int]], max_tokens: int) -> list[_Pack]:
    """Greedy: a response joins the pack before it when the prompt is the same and the row stays short enough."""
    packs: list[_Pack] = []
    for member, (prompt, tokens) in enumerate(zip(prompts, inputs, strict=True)):
        last = packs[-1] if packs else None
        if last is None or list(last.prompt) != list(prompt) or last.n_tokens + len(tokens) > max_tokens:
            last = _Pack(prompt, n_tokens=len(prompt))
            packs.append(last)
        last.members.append(member)
        last.n_tokens += len(tokens)
    return packs


def _choose_width(packs: Sequence[_Pack], row_tokens: int) -> tuple[int, int]:
    """Place packs in rows of the length that needs the fewest tokens; returns the number of rows and their length."""
    longest, total = max(pack.n_tokens for pack in packs), sum(pack.n_tokens for pack in packs)
    widths = {longest}
    fewest = -(-total // max(row_tokens, longest))
    for n_rows in (fewest, fewest + 1, fewest + 2):
        width = -(-total // n_rows)  # just enough, and some room for what does not fit exactly
        widths |= {w for w in (width, width + width // 32, width + width // 12) if longest < w <= row_tokens}
    if len(widths) == 1:
        return _assign_rows(packs, longest), longest
    best = min(sorted(widths), key=lambda width: width * _assign_rows(packs, width))
    return _assign_rows(packs, best), best


def _assign_rows(packs: Sequence[_Pack], width: int) -> int:
    """Give every pack its place in rows of `width` tokens; returns the number of rows.

    First fit, longest first: at most 22 % more rows than the best placement (Johnson 1973).
    """
    filled: list[int] = []
    for pack in sorted(packs, key=lambda pack: -pack.n_tokens):
        pack.row = next((row for row, used in enumerate(filled) if used + pack.n_tokens <= width), len(filled))
        if pack.row == len(filled):
            filled.append(0)
        pack.start = filled[pack.row]
        filled[pack.row] += pack.n_tokens
    return len(filled)


def _positions(parts: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Positions of a prompt and of responses that each continue it."""
    prompt, *answers = parts
    return np.concatenate([np.arange(len(prompt)), *(len(prompt) + np.arange(len(answer)) for answer in answers)])


def _predictors(first: int, n_prompt: int, lengths: Sequence[int], *, without_last: bool) -> Iterator[NDArray[Any]]:
    """Flat positions that predict each response's tokens: the prompt's last one, then the response's own.

    `without_last` says that last tokens are not in the input.
    """
    start = first + n_prompt
    for length in lengths:
        if length:
            yield np.concatenate([[first + n_prompt - 1], np.arange(start, start + length - 1)])
            start += length - without_last


def _visible(start: int, lengths: Sequence[int]) -> NDArray[Any]:
    """[3, tokens of the pack]: the range of the prompt for each response's tokens, and the begin of their segment."""
    n_prompt, *n_answers = lengths
    own = np.repeat(start + np.cumsum([0, *lengths[:-1]]), lengths)
    prompt_end = np.repeat([start, *[start + n_prompt] * len(n_answers)], lengths)
    return np.stack([np.full(sum(lengths), start), prompt_end, own])


def dense_mask(attention_ranges_3BT: paddle.Tensor) -> paddle.Tensor:
    """[B, T, T] bool: row i, column j is True where token i sees token j. Padding sees only itself."""
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
