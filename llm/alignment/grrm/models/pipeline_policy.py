"""A policy whose layers are divided into stages, on Paddle's pipeline layers.

Every stage makes the same batches, as tensor ranks do. So only hidden states go from stage to stage: each has the
positions, and what a token may see, of the micro-batch that it computes. The last stage takes the hidden states of the
response tokens, and the loss from them.

A stage may have several pieces of the layers: the first stage's second piece follows on the last stage's first, and so
on (virtual stages). Paddle then remembers one shape of messages, so micro-batches are sent as long as the longest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from grrm.errors import UserError
from grrm.models.cpu_layers import takes_ranges
from grrm.models.packing import additive_mask, flashmask_ends
from grrm.models.policy import TokenUse
from grrm.paddlenlp_api.modeling import LlamaForCausalLMPipe, Qwen2ForCausalLMPipe, dtype_guard, no_init_weights
from grrm.parallel.pipeline_ranks import from_stage, pipeline_group, receive, send
from grrm.parallel.tensor_ranks import own_part

PIPELINE_BASES = {"qwen2": Qwen2ForCausalLMPipe, "llama": LlamaForCausalLMPipe}

ModelInputs = Mapping[str, Any]
# The loss of a micro-batch, by its number, from the hidden states [N, H] of its response tokens.
LossOfStates = Callable[[int, paddle.Tensor], paddle.Tensor]
NumbersOfStates = Callable[[paddle.Tensor], paddle.Tensor]


class _Stage:
    """Mixin: this process's stage, whose layers read the positions and ranges of a micro-batch from its own copy."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]  # the base comes next
        self.reads_ranges = takes_ranges(config)
        self.token_use = TokenUse()
        self._micro_batches: Sequence[ModelInputs] = ()
        self._loss_of: LossOfStates | None = None
        stage: Any = self
        self._pieces = [list(piece) for piece in stage.get_model_chunks() or [stage.run_function]]
        self._numbers = [-1] * len(self._pieces)
        if stage.shared_layers and not self.is_first:
            # Paddle marks a weight of two stages by another name than its optimizer clips by, which would count it
            # twice in the norm of all gradients.
            for parameter in stage.shared_layers.parameters():
                parameter.is_firstly_shared = False
        layers = [layer for piece in self._pieces for layer in piece]
        attentions = [layer.self_attn for layer in layers if hasattr(layer, "self_attn")]
        for attention in attentions:
            attention.rotary_emb = attentions[0].rotary_emb

    @property
    def is_first(self) -> bool:
        """True where the embedding is."""
        stage: Any = self
        return bool(stage._stage_id == 0)

    @property
    def is_last(self) -> bool:
        """True where the LM head is."""
        stage: Any = self
        return bool(stage._stage_id == stage._num_stages - 1)

    @property
    def lm_head(self) -> Any:
        """The LM head, on the last stage."""
        return self._pieces[-1][-1]

    def get_loss_fn(self, config: Any) -> Callable[..., paddle.Tensor]:
        """In place of PaddleNLP's loss of logits and labels."""
        return self._loss

    def begin(self, micro_batches: Sequence[ModelInputs], loss_of: LossOfStates) -> None:
        """Say what the next forward and backward passes are of, in their order."""
        self._micro_batches, self._loss_of = micro_batches, loss_of
        self._numbers = [-1] * len(self._pieces)

    def forward(self, received: paddle.Tensor, chunk_id: int | None = None) -> paddle.Tensor:
        """A piece's part of the next micro-batch: hidden states [B, T, H], behind the last layer [N, H] of responses.

        Between several pieces they are [T, H], of as many tokens as the longest micro-batch has.
        """
        piece = chunk_id or 0
        self._numbers[piece] += 1
        inputs = self._micro_batches[self._numbers[piece]]
        if piece == 0:
            self.token_use.add(inputs["input_ids"], inputs["positions_N"], inputs["attention_ranges_3BT"])
        if len(self._pieces) == 1:
            return self._through_layers(received, inputs)
        shape = inputs["input_ids"].shape
        if not self._begins(piece):
            received = received[: math.prod(shape)].reshape([*shape, -1])
        hidden = self._through_layers(received, inputs, piece)
        if self._ends(piece):
            return hidden
        longest = max(math.prod(other["input_ids"].shape) for other in self._micro_batches)
        hidden_TH = hidden.reshape([-1, hidden.shape[-1]])
        return paddle.concat([hidden_TH, paddle.zeros([longest - len(hidden_TH), hidden_TH.shape[1]], hidden.dtype)])

    def _loss(self, hidden_NH: paddle.Tensor, labels: Any) -> paddle.Tensor:
        assert self._loss_of is not None
        return self._loss_of(self._numbers[-1], hidden_NH)

    @paddle.no_grad()
    def numbers_of(self, inputs: ModelInputs, numbers_of: NumbersOfStates) -> paddle.Tensor:
        """A float32 number [N] for each response token, from their hidden states. A collective of the stages."""
        stage: Any = self
        hidden = None
        for piece in range(len(self._pieces)):
            if not self._begins(piece):
                shape = [*inputs["input_ids"].shape, stage.config.hidden_size]
                hidden = receive(shape, next(iter(stage.parameters())).dtype)
            hidden = self._through_layers(hidden, inputs, piece)
            if not self._ends(piece):
                send(hidden)
        numbers_N = numbers_of(hidden).astype("float32") if self.is_last else None
        last = pipeline_group().nranks - 1
        return from_stage(last, numbers_N, inputs["positions_N"].shape, "float32")

    def _begins(self, piece: int) -> bool:
        return self.is_first and piece == 0

    def _ends(self, piece: int) -> bool:
        return self.is_last and piece == len(self._pieces) - 1

    def _through_layers(self, hidden: paddle.Tensor | None, inputs: ModelInputs, piece: int = 0) -> paddle.Tensor:
        layers, visible = list(self._pieces[piece]), self._visible(inputs)
        if self._begins(piece):
            hidden = _alone(layers.pop(0)(inputs["input_ids"]))
        if self._ends(piece):
            layers.pop()  # the loss reads the LM head
        for layer in layers:
            hidden = _alone(layer((hidden, *visible)))
        assert hidden is not None
        if not self._ends(piece):
            return hidden
        return paddle.gather(hidden.reshape([-1, hidden.shape[-1]]), inputs["positions_N"])

    def _visible(self, inputs: ModelInputs) -> tuple[paddle.Tensor | None, ...]:
        """Mask, ranges and positions, as PaddleNLP's pipeline layers take them."""
        stage: Any = self
        input_ids, ranges_3BT = inputs["input_ids"], inputs["attention_ranges_3BT"]
        positions_BT = inputs["position_ids"]
        if positions_BT is None:  # with ranges alone, Llama's layer takes these for positions
            positions_BT = paddle.arange(input_ids.shape[1]).expand(input_ids.shape)
        if not (self.reads_ranges or stage.config.use_flash_attention):
            return None if ranges_3BT is None else additive_mask(ranges_3BT), None, positions_BT
        if ranges_3BT is None:
            ranges_3BT = paddle.zeros([3, *input_ids.shape], dtype="int32")
        return None, ranges_3BT if self.reads_ranges else flashmask_ends(ranges_3BT), positions_BT


def _alone(output: Any) -> paddle.Tensor:
    """The hidden states of what a layer hands on."""
    return output[0] if isinstance(output, tuple) else output


def check_stages(config: Any, n_stages: int, n_pieces: int) -> None:
    """Raises UserError for an architecture without pipeline layers, and for layers that do not divide."""
    if config.model_type not in PIPELINE_BASES:
        raise UserError(
            f"pipeline_parallel_degree {n_stages} is not supported for model_type {config.model_type!r}, which has no "
            f"pipeline layers: use a checkpoint of {', '.join(PIPELINE_BASES)}, or set it to 1"
        )
    if config.num_hidden_layers < n_stages:
        raise UserError(
            f"the model has {config.num_hidden_layers} layers, fewer than pipeline_parallel_degree {n_stages}: lower it"
        )
    if n_pieces > 1 and config.num_hidden_layers % (n_stages * n_pieces):
        raise UserError(
            f"the model's {config.num_hidden_layers} layers do not divide into pipeline_parallel_degree {n_stages} x "
            f"virtual_pp_degree {n_pieces} equal pieces: set virtual_pp_degree: 1, or other degrees"
        )


def stage_of(model: Any, n_pieces: int = 1) -> Any:
    """This process's stage of a whole policy, which all stages must have alike, or its tensor rank's part of that.

    The stage has `n_pieces`. A collective of the stages. Raises UserError as `check_stages`.
    """
    config = model.config
    check_stages(config, pipeline_group().nranks, n_pieces)
    config.virtual_pp_degree = n_pieces
    base, stored = PIPELINE_BASES[config.model_type], model.state_dict()
    stage = empty_model(type(base.__name__, (_Stage, base), {"__module__": base.__module__}), config, stored)
    del config.virtual_pp_degree  # it is of this run, not of the model
    for name, parameter in stage.state_dict().items():
        parameter.set_value(own_part(stored[name], parameter))
    return stage


def empty_model(model_class: Any, config: Any, weights: Mapping[str, paddle.Tensor]) -> Any:
    """A model for these `weights`, of their type, with numbers that mean nothing yet."""
    dtype = str(next(iter(weights.values())).dtype).removeprefix("paddle.")
    with no_init_weights(), dtype_guard(dtype):
        return model_class(config)


def is_stage(model: Any) -> bool:
    """True for what `stage_of` returns."""
    return isinstance(model, _Stage)


def numbers_of_tokens(model: Any, inputs: ModelInputs, numbers_of: NumbersOfStates) -> paddle.Tensor:
    """`numbers_of` the hidden states of response tokens [N], under a whole policy or, as a collective, its stages."""
    if is_stage(model):
        return model.numbers_of(inputs, numbers_of)
    return numbers_of(model(**inputs).hidden_NH)
