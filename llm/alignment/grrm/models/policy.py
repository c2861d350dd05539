"""The policy: a PaddleNLP causal language model whose forward can answer with token log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import paddle
import paddle.nn.functional as F
from paddlenlp.transformers import LlamaForCausalLM, Qwen2ForCausalLM
from safetensors import SafetensorError

from grrm.errors import UserError
from grrm.models.attention_ranges import dense_mask
from grrm.models.checkpoint import is_hugging_face, read_config, rotary_overrides, weight_files
from grrm.models.chunked_loss import chunked_loss
from grrm.models.cpu_layers import operators, takes_ranges
from grrm.models.linear_scores import linear_scores, scores_by_parts

POLICY_BASES = {"qwen2": Qwen2ForCausalLM, "llama": LlamaForCausalLM}


class TokenScores(NamedTuple):
    """Per valid response token, flattened row by row (N): log-probability, and entropy in nats.

    The entropy has a gradient only where it was asked for, the softmax's log-normaliser always.
    """

    logprobs_N: paddle.Tensor
    entropy_N: paddle.Tensor
    log_normalizer_N: paddle.Tensor | None = None


# The part of a loss that belongs to the rows of this slice, or to all for None, from the scores of their tokens.
LossOfTokens = Callable[[TokenScores, slice | None], paddle.Tensor]


class _ScoresTokens:
    """Mixin: `forward(input_ids, positions_N=…, labels_N=…)` returns `TokenScores`, else it is the base's forward."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        # Asked once: layers keep the attention function that was in place when they were built.
        self.reads_ranges = takes_ranges(config)

    @classmethod
    def _load_pretrained_model(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse a checkpoint with holes, which PaddleNLP fills with random numbers and a warning."""
        loaded = super()._load_pretrained_model(*args, **kwargs)
        model, missing = loaded[0], set(loaded[1])
        if model.config.tie_word_embeddings:
            missing.discard("lm_head.weight")
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing)[:3])}{' and more' if len(missing) > 3 else ''}")
        return loaded

    def forward(
        self,
        input_ids=None,
        *args: Any,
        positions_N=None,
        labels_N=None,
        attention_ranges_3BT=None,
        temperature: float = 1.0,
        entropy_gradient: bool = False,
        loss_of: LossOfTokens | None = None,
        lengths_B: Sequence[int] = (),
        **kwargs,
    ):
        """Score `labels_N` at flat positions `positions_N` of the [B*T] hidden states that predict them.

        The LM head runs on those positions only: prompts and padding, most of a batch, never meet the vocabulary. Where
        logits would take much memory, they are never there all at the same time (`linear_scores`). Rows are
        right-padded, so causal attention alone keeps real tokens from seeing padding; `position_ids` and
        `attention_ranges_3BT` (see grrm.models.attention_ranges) are for packed rows.

        With `loss_of`, and the number of tokens of each response in `lengths_B`, the answer is the sum of that loss
        over the responses instead: the whole batch at once, or by parts with logits computed once (`chunked_loss`).
        """
        if positions_N is None:
            return super().forward(input_ids, *args, **kwargs)
        kwargs |= self._visibility(input_ids, attention_ranges_3BT)
        hidden = getattr(self, self.base_model_prefix)(input_ids, **kwargs)[0]
        hidden_N = paddle.gather(hidden.reshape([-1, hidden.shape[-1]]), positions_N)
        if temperature not in (0.0, 1.0):
            hidden_N = hidden_N / temperature
        by_parts = scores_by_parts(self.lm_head, hidden_N.shape[0])
        # Gradients of float16 need the loss scaled before they are computed, which is when the backward pass begins.
        is_half = paddle.float16 in (hidden_N.dtype, self.lm_head.weight.dtype)
        if by_parts and loss_of is not None and not is_half:

            def loss_of_scores(scores: tuple, rows: slice) -> paddle.Tensor:
                return loss_of(_token_scores(*scores, entropy_gradient), rows)

            return chunked_loss(hidden_N, self.lm_head, labels_N, lengths_B, loss_of_scores)
        if by_parts:
            scores = _token_scores(*linear_scores(hidden_N, self.lm_head, labels_N), entropy_gradient)
        else:
            scores = score_tokens(self.lm_head(hidden_N), labels_N, entropy_gradient)
        return scores if loss_of is None else loss_of(scores, None)

    def _visibility(self, input_ids: paddle.Tensor, attention_ranges_3BT: paddle.Tensor | None) -> dict[str, Any]:
        """What tells the base which tokens see each other: ranges where its attention reads them, else a mask."""
        if not self.reads_ranges:
            return {} if attention_ranges_3BT is None else {"attention_mask": dense_mask(attention_ranges_3BT)}
        if attention_ranges_3BT is None:
            attention_ranges_3BT = paddle.zeros([3, *input_ids.shape], dtype="int32")
        # The base passes this argument of flash attention on as it is and builds no mask of its own beside it.
        return {"attn_mask_startend_row_indices": attention_ranges_3BT}


def score_tokens(logits_NV: paddle.Tensor, labels_N: paddle.Tensor, entropy_gradient: bool = False) -> TokenScores:
    """log softmax(logits)[label], the entropy of softmax(logits) and its log-normaliser lse, all [N] float32.

    Without kernels entropy is lse - sum(p * logits): no logarithm over the vocabulary, and no gradient. With
    `entropy_gradient` it is then -sum(p * log p), with its gradient, at the price of another softmax. Paddle's CPU
    kernel clamps log-probabilities at -64, so below that both are approximate; the gradient is exact.
    """
    if operators.take(logits_NV):
        return _token_scores(*operators.score_tokens(logits_NV.astype("float32"), labels_N), entropy_gradient)
    labels_N1 = labels_N.unsqueeze(-1)
    nll_N1, probs_NV = F.softmax_with_cross_entropy(logits_NV.astype("float32"), labels_N1, return_softmax=True)
    logprobs_N = -nll_N1.squeeze(-1)
    lse_N = paddle.take_along_axis(logits_NV, labels_N1, axis=1).squeeze(-1) - logprobs_N
    if entropy_gradient:
        # The softmax returned above passes no gradient on.
        all_logprobs_NV = F.log_softmax(logits_NV.astype("float32"), axis=-1)
        return TokenScores(logprobs_N, -(paddle.exp(all_logprobs_NV) * all_logprobs_NV).sum(-1), lse_N)
    with paddle.no_grad():
        entropy_N = lse_N.detach() - (probs_NV.detach() * logits_NV.detach()).sum(-1)
    return TokenScores(logprobs_N, entropy_N, lse_N)


def _token_scores(
    logprobs_N: paddle.Tensor, entropy_N: paddle.Tensor, lse_N: paddle.Tensor, entropy_gradient: bool
) -> TokenScores:
    return TokenScores(logprobs_N, entropy_N if entropy_gradient else entropy_N.detach(), lse_N)


def policy_class(model_type: str) -> type:
    """The policy class for a `model_type` of config.json; it keeps the base's name, so checkpoints load anywhere."""
    base = POLICY_BASES.get(model_type)
    if base is None:
        raise UserError(f"model_type {model_type!r} is not supported: use a checkpoint of {', '.join(POLICY_BASES)}")
    return type(base.__name__, (_ScoresTokens, base), {"__module__": base.__module__})


def load_policy(directory: str | Path, **config_overrides: Any) -> Any:
    """Load a Paddle or Hugging Face checkpoint directory as a policy, in float32 unless `dtype` says otherwise.

    Raises UserError when the directory has no readable config.json, or weights that are not whole or do not fit it.
    """
    path = Path(directory)
    config = read_config(path)
    cls = policy_class(config.get("model_type", ""))
    overrides = {"dtype": "float32", "use_cache": False, **rotary_overrides(path, config), **config_overrides}
    if is_hugging_face(weight_files(path)):
        overrides["convert_from_torch"] = True
    try:
        return cls.from_pretrained(str(path), **overrides)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AssertionError, SafetensorError) as error:
        cause = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"the model in '{path}' cannot be loaded ({cause}): its weights are damaged or do not fit its config.json"
        ) from error
