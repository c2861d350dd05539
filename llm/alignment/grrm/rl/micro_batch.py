"""Rows to the tensors of one forward and backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from grrm.models.packing import index_packed
from grrm.models.token_index import TokenIndex, index_tokens
from grrm.rl.experience import Row
from grrm.rl.rollout import RolledGroup


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


def layout(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int, pack_tokens: int
) -> TokenIndex:
    """Packed rows of at most `pack_tokens` tokens where that is above 0, else one row per response."""
    if pack_tokens > 0:
        return index_packed(prompts, responses, pad_id, pack_tokens)
    return index_tokens(prompts, responses, pad_id)


def pack_tokens(args: Any) -> int:
    """The longest packed row the argument file allows: `max_length`, or 0 with `share_prompt` off."""
    return args.max_length if args.share_prompt else 0


def make_micro_batch(rows: Sequence[Row], pad_id: int, pack_tokens: int = 0) -> MicroBatch:
    """Tensors for one forward and backward pass over `rows`; see `layout` for `pack_tokens`."""
    index = layout([row.prompt_ids for row in rows], [row.token_ids for row in rows], pad_id, pack_tokens)
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
    pack_tokens: int = 0,
) -> list[np.ndarray]:
    """Log-probabilities of every response token under `model`, without gradient, `batch_size` rows at a time."""
    scored: list[np.ndarray] = []
    was_training = model.training
    model.eval()
    with paddle.no_grad():
        for start in range(0, len(prompts), batch_size):
            chunk = responses[start : start + batch_size]
            index = layout(prompts[start : start + batch_size], chunk, pad_id, pack_tokens)
            scores = model(**index.model_inputs(), temperature=temperature)
            flat_N = scores.logprobs_N.numpy()
            scored += np.split(flat_N, np.cumsum([len(response) for response in chunk])[:-1])
    if was_training:
        model.train()
    return scored


class TokenScorer:
    """Fills `policy_logprobs` and `ref_logprobs` of groups, each only where the algorithm needs it.

    `batch_size` rows per forward pass, in the order of the groups. Groups that share a pass are padded to the same
    width, so with another division of the groups among ranks their numbers may differ in the last bits.
    """

    def __init__(
        self,
        policy: Any | None,
        reference: Any | None,
        *,
        pad_id: int,
        batch_size: int,
        temperature: float,
        pack_tokens: int = 0,
    ):
        self.policy, self.reference = policy, reference
        self._options = {
            "pad_id": pad_id,
            "batch_size": batch_size,
            "temperature": temperature,
            "pack_tokens": pack_tokens,
        }

    def __call__(self, groups: Sequence[RolledGroup]) -> None:
        """Score every response of every group."""
        prompts = [rolled.prompt_ids for rolled in groups for _ in rolled.token_ids]
        responses = [tokens for rolled in groups for tokens in rolled.token_ids]
        for name, model in (("policy_logprobs", self.policy), ("ref_logprobs", self.reference)):
            if model is None:
                continue
            scored = iter(score_responses(model, prompts, responses, **self._options))
            for rolled in groups:
                setattr(rolled, name, [next(scored) for _ in rolled.token_ids])
