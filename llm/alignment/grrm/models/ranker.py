"""The ranker: a few transformer blocks over the policy's hidden states and log-probs of each candidate, and a score.

Scores do not depend on the order of a group's candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn

from grrm.errors import UserError
from grrm.models.cpu_layers.attention import SoftmaxAttention
from grrm.models.packing import scatter_index
from grrm.models.token_scores import score_beside_largest
from grrm.models.value_head import CandidateGroup, RewardModel, pack_groups, score_float32
from grrm.paddlenlp_api.modeling import Qwen2Config
from grrm.paddlenlp_api.modeling import qwen2 as modeling

Compare = Literal["none", "group"]

# Scales that give the features of a policy of a few million parameters about the same size.
_PRODUCT_SCALE, _EMBEDDING_SCALE, _SCORE_SCALE = 3.0, 5.0, 0.3


class Rows(NamedTuple):
    """Candidates' tokens as M rows of layers, and as the K rows of attention: one candidate a row, or one group.

    tokens_M: number of each among the N tokens.
    positions_M: positions, which restart with each candidate.
    index_KT: indices into the M tokens, 0 at padding.
    indices_M: index of each among the K * T.
    mask_KT: 0 at tokens and the lowest number at padding.
    own_KTT: 1 where two tokens are of one candidate; None if each row is one candidate.
    weights_KCT: average over the tokens of each of a row's C candidates.
    members_R: indices of the candidates among the K * C averages.
    """

    tokens_M: paddle.Tensor
    positions_M: paddle.Tensor
    index_KT: paddle.Tensor
    indices_M: paddle.Tensor
    mask_KT: paddle.Tensor
    own_KTT: paddle.Tensor | None
    weights_KCT: paddle.Tensor
    members_R: paddle.Tensor


def lay_out_rows(
    lengths_D: Sequence[int], numbers_R: NDArray[np.int64], group_sizes: Sequence[int], compare: Compare
) -> Rows:
    """Rows of groups where candidates are compared, copies included, else of the D distinct responses.

    `lengths_D` are their tokens, `numbers_R` says which of them each candidate is.
    """
    if compare == "group":
        sizes, in_rows, members_R = list(group_sizes), numbers_R, _members(group_sizes)
    else:
        sizes, in_rows, members_R = [1] * len(lengths_D), np.arange(len(lengths_D)), numbers_R
    lengths = np.asarray(lengths_D)[in_rows]
    ends = np.cumsum([0, *sizes])
    n_tokens = int(lengths.sum())
    candidate_M = np.repeat(np.arange(len(in_rows)), lengths)
    positions_M = np.arange(n_tokens) - (np.cumsum(lengths) - lengths)[candidate_M]
    index_KT = scatter_index([int(lengths[begin:end].sum()) for begin, end in itertools.pairwise(ends)])
    is_token_KT = index_KT < n_tokens
    candidate_KT = np.append(candidate_M, -1)[index_KT]
    number_KC = ends[:-1, None] + np.arange(max(sizes))  # of each row's candidates; some are of the rows behind
    weights_KCT = (number_KC[:, :, None] == candidate_KT[:, None, :]).astype(np.float32)
    weights_KCT /= np.maximum(weights_KCT.sum(-1, keepdims=True), 1)
    own_KTT = candidate_KT[:, :, None] == candidate_KT[:, None, :]
    return Rows(
        tokens_M=paddle.to_tensor((np.cumsum(lengths_D) - lengths_D)[in_rows][candidate_M] + positions_M),
        positions_M=paddle.to_tensor(positions_M),
        index_KT=paddle.to_tensor(np.where(is_token_KT, index_KT, 0)),
        indices_M=paddle.to_tensor(np.flatnonzero(is_token_KT)),
        mask_KT=paddle.to_tensor(np.where(is_token_KT, 0, np.finfo(np.float32).min).astype(np.float32)),
        own_KTT=paddle.to_tensor(own_KTT.astype(np.float32)) if compare == "group" else None,
        weights_KCT=paddle.to_tensor(weights_KCT),
        members_R=paddle.to_tensor(members_R),
    )


def _members(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Flat indices of the first `sizes[k]` of each row k of [K, max(sizes)]."""
    columns_C = np.arange(max(sizes))
    return np.flatnonzero(columns_C[None, :] < np.asarray(sizes)[:, None])


class Block(nn.Layer):
    """A transformer block without causal mask; where it compares, one learned bias a head for a candidate's own tokens.

    Its attention is computed in float32.
    """

    def __init__(self, config: Any, compare: Compare) -> None:
        super().__init__()
        width, self.n_heads = config.hidden_size, config.num_attention_heads
        self.attention_norm = modeling.Qwen2RMSNorm(config)
        self.query, self.key, self.value = (modeling.Linear(width, width) for _ in range(3))
        self.out = modeling.Linear(width, width, bias_attr=False)
        self.mlp_norm = modeling.Qwen2RMSNorm(config)
        self.mlp = modeling.Qwen2MLP(config)
        if compare == "group":
            self.own_bias = self.create_parameter([self.n_heads], default_initializer=nn.initializer.Constant(0.0))

    def forward(self, x_MH: paddle.Tensor, rows: Rows, tables: Any) -> paddle.Tensor:
        """[M, H] to [M, H]; `tables` are cosines and sines of rotary positions."""
        x_MH = x_MH + self.out(self._attend(self.attention_norm(x_MH), rows, tables))
        return x_MH + self.mlp(self.mlp_norm(x_MH))

    def _attend(self, x_MH: paddle.Tensor, rows: Rows, tables: Any) -> paddle.Tensor:
        shape = [1, x_MH.shape[0], self.n_heads, -1]
        query, key, value = (part(x_MH).reshape(shape) for part in (self.query, self.key, self.value))
        with paddle.amp.auto_cast(enable=False):
            query, key, value = (part.astype("float32") for part in (query, key, value))
            query, key = modeling.apply_rotary_pos_emb(query, key, *tables, rows.positions_M.unsqueeze(0))
            q, k, v = (self._in_rows(part, rows).transpose([0, 2, 1, 3]) for part in (query, key, value))
            mixed = SoftmaxAttention.apply(q, k, v, self._mask(rows)).transpose([0, 2, 1, 3])
            mixed_MH = paddle.gather(mixed.reshape([-1, x_MH.shape[1]]), rows.indices_M)
        return mixed_MH.astype(x_MH.dtype)

    def _in_rows(self, part: paddle.Tensor, rows: Rows) -> paddle.Tensor:
        """[1, M, heads, D] to [K, T, heads, D]; no token looks at what padding holds."""
        padded = paddle.gather(part.reshape([part.shape[1], -1]), rows.index_KT.flatten())
        return padded.reshape([*rows.index_KT.shape, *part.shape[2:]])

    def _mask(self, rows: Rows) -> paddle.Tensor:
        """Return the mask [K, heads, T, T] that is added to attention scores."""
        n_rows, length = rows.mask_KT.shape
        mask = rows.mask_KT.reshape([n_rows, 1, 1, length]).expand([n_rows, self.n_heads, length, length])
        if rows.own_KTT is None:
            return mask
        own = rows.own_KTT.reshape([n_rows, 1, length * length])
        return mask + paddle.matmul(self.own_bias.astype("float32").reshape([-1, 1]), own).reshape(mask.shape)


class RankerHead(nn.Layer):
    """Features of tokens to one number a candidate: a linear layer, blocks, a norm, the mean over tokens, a number."""

    def __init__(self, backbone: Any, compare: Compare, blocks: int, width: int, seed: int) -> None:
        super().__init__()
        head_width = backbone.hidden_size // backbone.num_attention_heads
        config = Qwen2Config(
            hidden_size=width,
            intermediate_size=8 * -(-width // 3),
            num_attention_heads=width // head_width,
            rms_norm_eps=backbone.rms_norm_eps,
        )
        self.features = modeling.Linear(3 * backbone.hidden_size + 2, width)
        self.blocks = nn.LayerList([Block(config, compare) for _ in range(blocks)])
        self.norm = modeling.Qwen2RMSNorm(config)
        self.score = nn.Linear(width, 1)
        self.score.bias.stop_gradient = True  # it cancels in every difference, so its gradient is rounding error
        self.rotary = modeling.Qwen2RotaryEmbedding(head_width, max_position_embeddings=512)
        self._draw(np.random.default_rng(seed))

    def _draw(self, random: np.random.Generator) -> None:
        """Initial weights: biases 0, norms 1, what a block adds to its input small, scores near 0."""
        for name, weight in self.named_parameters():
            if name.endswith(".weight") and weight.ndim == 2:
                spread = 0.3 if name.endswith(("out.weight", "down_proj.weight", "score.weight")) else 0.7
                sample = random.normal(0.0, spread * weight.shape[0] ** -0.5, weight.shape)
                weight.set_value(sample.astype(np.float32))
            elif name.endswith(".bias"):
                weight.set_value(np.zeros(weight.shape, dtype=np.float32))

    def forward(self, features_NF: paddle.Tensor, rows: Rows) -> paddle.Tensor:
        """[N, 3 H + 2] to scores [R] float32."""
        x_NH = self.features(features_NF.astype(self.features.weight.dtype))
        x_MH = paddle.gather(x_NH, rows.tokens_M)
        tables = self.rotary(rows.mask_KT, seq_len=rows.mask_KT.shape[1])
        for block in self.blocks:
            x_MH = block(x_MH, rows, tables)
        normed_KTH = paddle.gather(self.norm(x_MH), rows.index_KT.flatten()).reshape([*rows.index_KT.shape, -1])
        with paddle.amp.auto_cast(enable=False):
            means_KCH = paddle.matmul(rows.weights_KCT, normed_KTH.astype("float32"))
            means_RH = paddle.gather(means_KCH.reshape([-1, means_KCH.shape[-1]]), rows.members_R)
        return score_float32(self.score, means_RH)


class Ranker(RewardModel):
    """One number a candidate, from hidden states, embeddings and log-probabilities of its tokens under the backbone.

    For token x_t they are h_t, h_(t-1) * e(x_t), e(x_t), log p(x_t), and how far its logit lies below the largest,
    which has no gradient. In the blocks a candidate's tokens see each other, with `compare` "group" those of all
    candidates of the group. Raises UserError for a `width` that is no multiple of the backbone's attention heads.
    """

    kind = "ranker"

    def __init__(
        self, backbone: Any, compare: Compare = "none", blocks: int = 2, width: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(backbone)
        config = backbone.config
        width = config.hidden_size if width is None else width
        _check(config, compare, blocks, width)
        self.compare, self.width = compare, width
        self.head = RankerHead(config, compare, blocks, width, seed)

    def settings(self) -> dict[str, Any]:
        """`compare`, `blocks` and `width`."""
        return {"compare": self.compare, "blocks": len(self.head.blocks), "width": self.width}

    def collate(self, groups: Sequence[CandidateGroup]) -> dict[str, Any]:
        """Packed rows; where each candidate's tokens are, and what predicts them; and the rows of the new blocks."""
        tokens, numbers_R = pack_groups(groups)
        group_sizes = [len(group.responses) for group in groups]
        rows = lay_out_rows(tokens.lengths_R, numbers_R, group_sizes, self.compare)
        positions_2N = paddle.concat([tokens.own_positions_N, tokens.positions_N])
        return {**tokens.model_inputs(), "positions_2N": positions_2N, "labels_N": tokens.labels_N, **rows._asdict()}

    def forward(self, **batch: Any) -> paddle.Tensor:
        """Scores [R] float32."""
        hidden_2NH = self.hidden_states(batch, batch["positions_2N"])
        rows = Rows(**{name: batch[name] for name in Rows._fields})
        return self.head(self._features(hidden_2NH, batch["labels_N"]), rows)

    def _features(self, hidden_2NH: paddle.Tensor, labels_N: paddle.Tensor) -> paddle.Tensor:
        """[N, 3 H + 2] of the tokens' own hidden states and of those that predict them."""
        own_NH, before_NH = paddle.split(hidden_2NH, 2)
        logprobs_N, gaps_N = score_beside_largest(before_NH, self.backbone.lm_head, labels_N)
        embedded_NH = self.backbone.get_input_embeddings()(labels_N).astype(own_NH.dtype)
        scores_N2 = (paddle.stack([logprobs_N, gaps_N], axis=-1) * _SCORE_SCALE).astype(own_NH.dtype)
        product_NH = before_NH * embedded_NH * _PRODUCT_SCALE
        return paddle.concat([own_NH, product_NH, embedded_NH * _EMBEDDING_SCALE, scores_N2], axis=-1)


def _check(config: Any, compare: str, blocks: int, width: int) -> None:
    head_width = config.hidden_size // config.num_attention_heads
    if compare not in get_args(Compare):
        raise UserError(f"compare is {compare!r}, which a ranker does not know: set it to none or group")
    if blocks < 0:
        raise UserError(f"the ranker has {blocks} blocks: give 0 or more")
    if width < head_width or width % head_width:
        raise UserError(
            f"the ranker's width is {width}, but its backbone has attention heads of {head_width}: set it to a "
            f"multiple of {head_width}, or leave it out for {config.hidden_size}"
        )
