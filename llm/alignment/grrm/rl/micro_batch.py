"""Rows to tensors: right-padded token ids and the flat indices that pick the response positions out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle

from grrm.rl.experience import Row


@dataclass(slots=True)
class TokenIndex:
    """Where the response tokens of a [B, T] batch sit, flattened (N) and back to [B, R].

    `positions_N` are indices into the [B*T] hidden states that predict `labels_N`; `scatter_BR` indexes an [N + 1]
    vector whose last element is the padding value.
    """

    input_ids: paddle.Tensor
    positions_N: paddle.Tensor
    labels_N: paddle.Tensor
    scatter_BR: paddle.Tensor

    def to_rows(self, values_N: paddle.Tensor) -> paddle.Tensor:
        """[N] -> [B, R], zeros where a row has no token. Differentiable."""
        padded = paddle.concat([values_N, paddle.zeros([1], dtype=values_N.dtype)])
        return paddle.gather(padded, self.scatter_BR.flatten()).reshape(self.scatter_BR.shape)


def index_tokens(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int) -> TokenIndex:
    """Lay out prompt + response rows, right-padded. Every prompt needs at least one token (it predicts the first)."""
    lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    width, response_width = max(lengths), max(len(response) for response in responses)
    ids_BT = np.full((len(prompts), width), pad_id, dtype=np.int64)
    positions: list[np.ndarray] = []
    n_total = sum(len(response) for response in responses)
    scatter_BR = np.full((len(prompts), response_width), n_total, dtype=np.int64)
    filled = 0
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        start = len(prompt)
        ids_BT[row, :start] = prompt
        ids_BT[row, start : start + len(response)] = response
        positions.append(row * width + start - 1 + np.arange(len(response)))
        scatter_BR[row, : len(response)] = filled + np.arange(len(response))
        filled += len(response)
    labels_N = np.concatenate([np.asarray(response, dtype=np.int64) for response in responses])
    return TokenIndex(
        paddle.to_tensor(ids_BT),
        paddle.to_tensor(np.concatenate(positions).astype(np.int64)),
        paddle.to_tensor(labels_N),
        paddle.to_tensor(scatter_BR),
    )


@dataclass(slots=True)
class MicroBatch:
    """What `compute_loss` sees; [B, R] tensors are zero beyond each row's response."""

    index: TokenIndex
    advantages_BR: paddle.Tensor
    mask_BR: paddle.Tensor
    engine_logprobs_BR: paddle.Tensor
    old_logprobs_BR: paddle.Tensor | None
    ref_logprobs_BR: paddle.Tensor | None


def _pad(rows: Sequence[np.ndarray], width: int) -> paddle.Tensor:
    table = np.zeros((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return paddle.to_tensor(table)


def make_micro_batch(rows: Sequence[Row], pad_id: int) -> MicroBatch:
    """Tensors for one forward and backward pass over `rows`."""
    index = index_tokens([row.prompt_ids for row in rows], [row.token_ids for row in rows], pad_id)
    width = index.scatter_BR.shape[1]

    def optional(values: list[np.ndarray | None]) -> paddle.Tensor | None:
        present = [value for value in values if value is not None]
        return _pad(present, width) if len(present) == len(values) else None

    return MicroBatch(
        index=index,
        advantages_BR=_pad([row.advantages_T for row in rows], width),
        mask_BR=_pad([row.mask_T for row in rows], width),
        engine_logprobs_BR=_pad([row.engine_logprobs_T for row in rows], width),
        old_logprobs_BR=optional([row.old_logprobs_T for row in rows]),
        ref_logprobs_BR=optional([row.ref_logprobs_T for row in rows]),
    )


def score_responses(
    model: paddle.nn.Layer,
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    pad_id: int,
    batch_size: int,
    temperature: float,
) -> list[np.ndarray]:
    """Log-probabilities of every response token under `model`, without gradient, `batch_size` rows at a time."""
    scored: list[np.ndarray] = []
    was_training = model.training
    model.eval()
    with paddle.no_grad():
        for start in range(0, len(prompts), batch_size):
            chunk = responses[start : start + batch_size]
            index = index_tokens(prompts[start : start + batch_size], chunk, pad_id)
            scores = model(
                index.input_ids, positions_N=index.positions_N, labels_N=index.labels_N, temperature=temperature
            )
            flat_N = scores.logprobs_N.numpy()
            scored += np.split(flat_N, np.cumsum([len(response) for response in chunk])[:-1])
    if was_training:
        model.train()
    return scored
