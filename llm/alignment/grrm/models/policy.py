"""The policy: a PaddleNLP causal language model whose forward can return hidden states of the response tokens."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle.distributed.fleet.utils.sequence_parallel_utils import GatherOp

from grrm.errors import UserError
from grrm.models.checkpoint import TIED_HEAD, load_model
from grrm.models.cpu_layers import takes_ranges
from grrm.models.hub import checkpoint_folder
from grrm.models.packing import dense_mask, flashmask_ends
from grrm.models.qwen2_moe import Qwen2MoeForCausalLM
from grrm.models.qwen3 import Qwen3ForCausalLM
from grrm.paddlenlp_api.modeling import LlamaForCausalLM, Qwen2ForCausalLM

POLICY_BASES = {
    "qwen2": Qwen2ForCausalLM,
    "llama": LlamaForCausalLM,
    "qwen3": Qwen3ForCausalLM,
    "qwen2_moe": Qwen2MoeForCausalLM,
}
# Its layers read this setting, but `from_pretrained` replaces only settings that have a default.
LlamaForCausalLM.config_class.rope_scaling = None


class HiddenStates(NamedTuple):
    """Hidden states [N, H] of the response tokens, and an empty slice of the LM head's weights.

    Paddle's data parallelism expects gradients of those parameters only that it finds behind a forward pass's outputs;
    the slice, which costs nothing, leads it to the LM head, which is used after the forward pass.
    """

    hidden_NH: paddle.Tensor
    no_weights: paddle.Tensor


class TokenUse:
    """Counts what goes through a policy's forward passes with gradients, without waiting for the device."""

    def __init__(self) -> None:
        self._n_tokens: paddle.Tensor | int = 0
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
            self._n_tokens = self._n_tokens + (attention_ranges_3BT[2] <= paddle.arange(length, dtype="int32")).sum()
            return
        rows_N = positions_N // length
        is_last_N = paddle.concat([rows_N[1:], paddle.full([1], n_rows, "int64")]) != rows_N
        ends_N = positions_N % length + 2  # behind the token that a position predicts
        self._n_tokens = self._n_tokens + (ends_N * is_last_N.astype("int64")).sum()

    def take(self) -> tuple[int, int]:
        """Return the tokens since the last call without padding, and with it.

        A prompt that several responses share counts once, as it is computed.
        """
        used = int(self._n_tokens), self._n_laid_out
        self._n_tokens, self._n_laid_out = 0, 0
        return used


class _ReturnsHidden:
    """Mixin: `forward(input_ids, positions_N=…)` returns `HiddenStates`, else it is the base's forward."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]  # the base comes next
        # Asked once: layers keep the attention function that was in place when they were built.
        self.reads_ranges = takes_ranges(config)
        self.token_use = TokenUse()
        if config.tie_word_embeddings:
            self._keys_to_ignore_on_save = [TIED_HEAD]

    def forward(
        self,
        input_ids: Any = None,
        *args: Any,
        positions_N: paddle.Tensor | None = None,
        attention_ranges_3BT: paddle.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Hidden states at flat positions `positions_N` of [B*T]; without them, the base's forward.

        Rows are right-padded, so causal attention alone keeps real tokens from seeing padding; `position_ids` and
        `attention_ranges_3BT` (see grrm.models.packing) are for packed rows. With sequence parallelism the
        hidden states of all tokens are put together before those are taken.
        """
        if positions_N is None:
            return super().forward(input_ids, *args, **kwargs)  # type: ignore[misc]  # the base comes next
        model: Any = self
        if paddle.is_grad_enabled():
            self.token_use.add(input_ids, positions_N, attention_ranges_3BT)
        base = getattr(model, model.base_model_prefix)
        position_ids = kwargs.pop("position_ids", None)
        if model.config.sequence_parallel:
            rows = _pad_to_multiple(
                input_ids, position_ids, attention_ranges_3BT, positions_N, model.config.tensor_parallel_degree
            )
            input_ids, position_ids, attention_ranges_3BT, positions_N = rows
            for layer in base.layers:
                layer.self_attn.seq_length = input_ids.shape[1]
        kwargs |= self._attention(input_ids, attention_ranges_3BT)
        hidden = base(input_ids, position_ids=position_ids, **kwargs)[0]
        if model.config.sequence_parallel:
            hidden = GatherOp.apply(hidden)
        hidden_NH = paddle.gather(hidden.reshape([-1, hidden.shape[-1]]), positions_N)
        return HiddenStates(hidden_NH, model.lm_head.weight[:0])

    def set_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """The base's, without its warning about a tied head, which checkpoints leave out."""
        with warnings.catch_warnings():
            if self.config.tie_word_embeddings:  # type: ignore[attr-defined]  # of the base
                warnings.filterwarnings("ignore", message=f"Skip loading for {TIED_HEAD}")
            return super().set_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]  # the base comes next

    def _attention(self, input_ids: paddle.Tensor, attention_ranges_3BT: paddle.Tensor | None) -> dict[str, Any]:
        """Return the base's arguments for visibility: the ranges as its attention reads them, or a mask."""
        model: Any = self
        if not (self.reads_ranges or model.config.use_flash_attention):
            return {} if attention_ranges_3BT is None else {"attention_mask": dense_mask(attention_ranges_3BT)}
        if attention_ranges_3BT is None:
            attention_ranges_3BT = paddle.zeros([3, *input_ids.shape], dtype="int32")
        # The base passes this argument of flash attention on as it is and builds no mask of its own beside it.
        read = attention_ranges_3BT if self.reads_ranges else flashmask_ends(attention_ranges_3BT)
        return {"attn_mask_startend_row_indices": read}


def _pad_to_multiple(
    input_ids: paddle.Tensor,
    position_ids: paddle.Tensor | None,
    attention_ranges_3BT: paddle.Tensor | None,
    positions_N: paddle.Tensor,
    n_parts: int,
) -> tuple[paddle.Tensor, paddle.Tensor | None, paddle.Tensor | None, paddle.Tensor]:
    """The arguments with padding behind each row, so that the tokens divide into `n_parts` equal parts."""
    n_rows, length = input_ids.shape
    extra = -length % n_parts
    if not extra:
        return input_ids, position_ids, attention_ranges_3BT, positions_N
    input_ids = paddle.concat([input_ids, paddle.zeros([n_rows, extra], dtype=input_ids.dtype)], axis=1)
    if position_ids is not None:
        position_ids = paddle.concat([position_ids, paddle.zeros([n_rows, extra], dtype=position_ids.dtype)], axis=1)
    if attention_ranges_3BT is not None:
        nothing_3BT = paddle.zeros([3, n_rows, extra], dtype="int32")
        nothing_3BT[2] = paddle.arange(length, length + extra, dtype="int32") + 1
        attention_ranges_3BT = paddle.concat([attention_ranges_3BT, nothing_3BT], axis=2)
    positions_N = positions_N // length * (length + extra) + positions_N % length
    return input_ids, position_ids, attention_ranges_3BT, positions_N


def policy_class(model_type: str) -> Any:
    """The policy class for a `model_type` of config.json; it keeps the base's name, so checkpoints load anywhere."""
    base = POLICY_BASES.get(model_type)
    if base is None:
        raise UserError(f"model_type {model_type!r} is not supported: use a checkpoint of {', '.join(POLICY_BASES)}")
    return type(base.__name__, (_ReturnsHidden, base), {"__module__": base.__module__})


def load_policy(directory: str | Path, **config_overrides: Any) -> Any:
    """Load a Paddle or Hugging Face checkpoint as a policy, in float32 unless `dtype` says otherwise.

    `directory` may be a hub's name of it. Raises UserError when there is no readable config.json, or weights that are
    not whole or do not fit it, and as `checkpoint_folder`.
    """
    settings = {"dtype": "float32", "use_cache": False, **config_overrides}
    return load_model(policy_class, checkpoint_folder(directory), **settings)


def freeze_layers(model: Any, n_layers: int) -> None:
    """Keep the input embeddings and the lowest `n_layers` layers as they are; 0 freezes nothing.

    Where `tie_word_embeddings` is set, the output is frozen with the embeddings. Raises UserError when no layer would
    be left to train.
    """
    if not n_layers:
        return
    total = model.config.num_hidden_layers
    if n_layers >= total:
        raise UserError(f"frozen_layers is {n_layers}, but the model has {total} layers: leave at least one to train")
    base = getattr(model, model.base_model_prefix)
    for part in (base.embed_tokens, *base.layers[:n_layers]):
        for parameter in part.parameters():
            parameter.stop_gradient = True
