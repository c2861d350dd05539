"""One prompt, many responses, one row: the samples of a group share their prompt's forward and backward pass.

A packed row is the prompt followed by its responses. Every response continues the prompt's positions and sees the
prompt and itself only, so hidden states, losses and gradients equal those of separate rows, while the prompt, which
is most of a translation row, is computed once instead of once per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import paddle

from grrm.rl.token_index import TokenIndex, scatter_index


@dataclass(slots=True)
class _Pack:
    """One packed row: where each response starts (0 = right after the prompt) and which rows it serves."""

    prompt: Sequence[int]
    members: list[int] = field(default_factory=list)
    n_tokens: int = 0


def index_packed(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int, max_tokens: int
) -> TokenIndex:
    """Lay out rows with neighbours of equal prompt packed together, no packed row longer than `max_tokens`.

    A response's last token predicts nothing and is left out of the input. A row that is longer than `max_tokens` on its
    own stays alone. `scatter_BR` keeps one row per response, in the given order, as in `index_tokens`.
    """
    packs = _packs(prompts, responses, max_tokens)
    width = max(pack.n_tokens for pack in packs)
    ids_BT = np.full((len(packs), width), pad_id, dtype=np.int64)
    positions_BT = np.zeros((len(packs), width), dtype=np.int64)
    segments_BT = np.full((len(packs), width), -1, dtype=np.int64)
    predictors: list[np.ndarray] = []
    for row, pack in enumerate(packs):
        start = len(pack.prompt)
        ids_BT[row, :start], positions_BT[row, :start], segments_BT[row, :start] = pack.prompt, np.arange(start), 0
        filled = start
        for number, member in enumerate(pack.members, 1):
            inputs = responses[member][:-1]
            end = filled + len(inputs)
            ids_BT[row, filled:end], segments_BT[row, filled:end] = inputs, number
            positions_BT[row, filled:end] = start + np.arange(len(inputs))
            if len(responses[member]):
                predictors.append(row * width + np.concatenate([[start - 1], np.arange(filled, end)]))
            filled = end
    return TokenIndex(
        input_ids=paddle.to_tensor(ids_BT),
        positions_N=paddle.to_tensor(np.concatenate(predictors).astype(np.int64)),
        labels_N=paddle.to_tensor(np.concatenate([np.asarray(response, dtype=np.int64) for response in responses])),
        scatter_BR=paddle.to_tensor(scatter_index([len(response) for response in responses])),
        position_ids=paddle.to_tensor(positions_BT),
        attention_mask=paddle.to_tensor(_visible(segments_BT)),
    )


def _packs(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], max_tokens: int) -> list[_Pack]:
    """Greedy: a response joins the pack before it when the prompt is the same and the row stays short enough."""
    packs: list[_Pack] = []
    for member, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        extra = max(len(response) - 1, 0)
        last = packs[-1] if packs else None
        if last is None or list(last.prompt) != list(prompt) or last.n_tokens + extra > max_tokens:
            last = _Pack(prompt, n_tokens=len(prompt))
            packs.append(last)
        last.members.append(member)
        last.n_tokens += extra
    return packs


def _visible(segments_BT: np.ndarray) -> np.ndarray:
    """[B, T, T] mask: token i sees token j <= i of the prompt (segment 0) or of its own response."""
    width = segments_BT.shape[1]
    own_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
    prompt_B1T = segments_BT[:, None, :] == 0
    return (own_BTT | prompt_B1T) & np.tril(np.ones((width, width), dtype=bool))[None]
