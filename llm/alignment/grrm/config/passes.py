"""Bytes of a forward and a backward pass on one device, by formula.

T are tokens of a micro-batch, t tensor ranks, H, I, V the sizes of hidden states, inner layer and vocabulary, Q and K
the widths of all query and of all key heads.

What a layer keeps for its backward pass follows Korthikanti et al. (arXiv:2205.05198, section 4), counted for a layer
with rotary positions, grouped key heads and SwiGLU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from grrm.config.layout import Layout
from grrm.config.model_shape import ModelShape
from grrm.config.stage_config import StageConfig
from grrm.config.workload import Workload

# Of the output layer, at a time: tokens, and float32 copies of their logits on the way to a gradient.
HEAD_TOKENS = {"cpu": 256, "gpu": 1024}
HEAD_COPIES = {"cpu": 2, "gpu": 5}  # on a CPU a chunk's are there until the next one's are

HEAP_SHARE = 0.13  # measured: 6 to 20 %
PROCESS = 30 * 2**20  # measured: 24 to 40 MiB


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of a number: a weight, one that is computed, a gradient, and what the optimizer keeps for a weight."""

    device: Literal["cpu", "gpu"]
    weight: int
    computed: int
    gradient: int
    state: int
    rounds: bool = False  # factors of products to bfloat16, on a CPU

    @classmethod
    def of(cls, config: StageConfig) -> Formats:
        """As Trainer trains: on a CPU all is float32; O2 has weights in 16 bits and a float32 copy to update."""
        device = config.device or "gpu"
        if device == "cpu" or not (config.bf16 or config.fp16):
            return cls(device, 4, 4, 4, 8, bool(config.bf16))
        if config.fp16_opt_level != "O2":
            return cls(device, 4, 2, 4, 8)
        moments = 4 if config.optim == "adamw_16bit_moment" else 8  # which has float32 ones for float32 weights
        return cls(device, 2, 2, 4 if config.amp_master_grad else 2, moments + 4)


@dataclass(frozen=True, slots=True)
class Part:
    """The purpose and number of some bytes, and what they follow from."""

    name: str
    size: int
    note: str = ""


def activations(shape: ModelShape, layout: Layout, tokens: int, longest: int, formats: Formats) -> int:
    """Activations that all layers keep until their backward pass.

    Without recompute a layer keeps 4 H + 2 Q + 2 K + 3 I numbers a token: both sums that are normalised and their
    norms, queries, keys, values and what attention makes of them, gate, up and their product. Attention's, inner and
    with sequence parallel also hidden numbers are divided by t.

    Recompute keeps a layer's input, H; full_attn leaves out queries, keys and values and attention's result. Without
    flash attention on a GPU, and in PaddleNLP's unfused norms and rotations, more is kept: see `_unfused`.
    """
    hidden, rest, layer = _layer(shape, layout, longest, formats)
    retained = {"": layer, "full": hidden, "full_attn": rest, "core_attn": layer - _scores(shape, layout, longest)}
    return int(tokens * shape.layers * retained[layout.recompute] * formats.computed)


def layer_backward(shape: ModelShape, layout: Layout, tokens: int, longest: int, formats: Formats) -> int:
    """The backward pass where it is: gradients of 3 I + 2 H numbers a token, and with recompute the layer itself."""
    hidden, _, layer = _layer(shape, layout, longest, formats)
    numbers = 3 * shape.inner / layout.tensor + 2 * hidden + (layer if layout.recompute else 0)
    return int(tokens * numbers * formats.computed)


def _layer(shape: ModelShape, layout: Layout, longest: int, formats: Formats) -> tuple[float, float, float]:
    """Numbers a token of a layer: its input, all that is not attention's, and all."""
    hidden = shape.hidden / (layout.tensor if layout.sequence else 1)
    queries, keys = (heads * shape.head_width / layout.tensor for heads in (shape.heads, shape.key_heads))
    # with a copy for each expert, and what it answers
    rest = (4 + 2 * shape.routed) * hidden + 3 * shape.inner / layout.tensor
    extra = _unfused(shape, layout, longest) if formats.device == "gpu" else 0
    return hidden, rest, rest + 2 * (queries + keys) + extra


def ranker_activations(shape: ModelShape, work: Workload, formats: Formats) -> int:
    """Numbers a token of a ranker's head of width W, with its backward pass: 16 H of features, 44 W in a block (as
    measured), 20 of them around its attention in float32, and the attention's weights."""
    width = work.ranker_width or shape.hidden
    attended = width // shape.head_width * work.ranker_span
    block = 24 * width * formats.computed + (20 * width + attended) * 4
    return work.tokens * (16 * shape.hidden * formats.computed + work.ranker_blocks * block)


def _unfused(shape: ModelShape, layout: Layout, longest: int) -> float:
    """Further numbers a token and layer, of PaddleNLP's operators that are not fused: norms never are.

    A norm keeps two float32 copies of its input, a rotation both factors of two products, and attention repeated keys
    and values, its scores and their softmax: float32 and 16 bits of each head and position.
    """
    width = shape.head_width / layout.tensor
    numbers = 2 * 4 * shape.hidden / (layout.tensor if layout.sequence else 1)
    if not layout.fused_rotary:
        numbers += 2 * (shape.heads + shape.key_heads) * width
    if not layout.flash:
        numbers += 2 * (shape.heads - shape.key_heads) * width + _scores(shape, layout, longest)
    return numbers


def _scores(shape: ModelShape, layout: Layout, longest: int) -> float:
    return 0.0 if layout.flash else 3 * longest * shape.heads / layout.tensor


def pass_bytes(shape: ModelShape, layout: Layout, tokens: int, formats: Formats) -> int:
    """A forward pass that keeps nothing: (2 H + 3 I) numbers a token in the layer where it is."""
    hidden = shape.hidden / (layout.tensor if layout.sequence else 1)
    return int(tokens * (2 * hidden + 3 * shape.inner / layout.tensor) * formats.computed)


def output_layer(shape: ModelShape, layout: Layout, scored: int, formats: Formats) -> int:
    """Logits of chunks of tokens in float32, the gradient of V x H weights beside them, and 3 H numbers a token."""
    if not scored:
        return 0
    words = shape.vocabulary / layout.tensor
    logits = min(scored, HEAD_TOKENS[formats.device]) * words * 4 * HEAD_COPIES[formats.device]
    # a GPU adds up float32 and has a chunk's beside them; factors of bfloat16 are laid out for both products
    sums = words * shape.hidden * 4 * (2 if formats.device == "gpu" or formats.rounds else 1)
    return int(logits + sums + 3 * scored * shape.hidden * formats.computed)


def embedding_gradients(shape: ModelShape, layout: Layout, work: Workload, formats: Formats) -> int:
    """Gradients of V x H weights at the end of the backward pass, on their way to those that are kept: the embedding's
    and, where it is the output layer as well, that one's, which waits for it from the start."""
    copies = 2 if shape.tied and work.scored else 1
    return int(copies * shape.vocabulary / layout.tensor * shape.hidden * formats.gradient)


def update_phases(
    shape: ModelShape, layout: Layout, recompute: str, work: Workload, formats: Formats
) -> tuple[tuple[Part, ...], ...]:
    """The phases of a forward and backward pass, one after the other, with the parts of each.

    The output layer above all activations, a layer's backward pass below it, and the embedding once no activations are
    left. A ranker's head comes first; the gradient of its embeddings then waits for the embedding's.
    """
    layout, sizes = replace(layout, recompute=recompute), (work.tokens, work.longest, formats)
    note = f"{work.tokens:,} tokens, recompute {recompute or 'off'}"
    retained = Part("activations", activations(shape, layout, *sizes), note)
    end = embedding_gradients(shape, layout, work, formats)
    waiting = end // 2 if shape.tied and work.scored else 0
    of_ranker = ranker_activations(shape, work, formats) if work.ranker_blocks else 0
    of_head = output_layer(shape, layout, work.scored, formats) + (end - waiting if of_ranker else 0)
    of_layer = layer_backward(shape, layout, *sizes) + (end if of_ranker else waiting)
    return (
        (retained, Part("head of the ranker", of_ranker, f"{work.ranker_blocks} blocks")),
        (retained, Part("output layer", of_head, f"{work.scored:,} tokens, in chunks")),
        (retained, Part("backward pass of a layer", of_layer, f"{work.tokens:,} tokens")),
        (Part("gradients of the embedding", end, "before they are added up"),),
    )


def heap_gaps(shape: ModelShape, layout: Layout, work: Workload, formats: Formats, tensors: int) -> int:
    """Memory of a CPU process beside `tensors` bytes of tensors, most of it freed and too small for later blocks.

    * A share of the tensors, fitted to what was measured.
    * Blocks as large as the embedding, for which no gap is large enough: its gradients, and what gloo sends, in a
      buffer of its own and with data parallelism in a new one beside the last step's.
    * With recompute what a layer frees while gradients that stay are put between: in all, its activations once more.
    * Buffers of BLAS and Python.
    """
    sizes = (shape, layout, work.tokens, work.longest, formats)
    again = activations(*sizes) + layer_backward(*sizes) if layout.recompute else 0
    n_sent = 1 if layout.sharding > 1 else 2 if layout.data > 1 else 0
    sent = n_sent * shape.vocabulary // layout.tensor * shape.hidden * formats.gradient
    return int(HEAP_SHARE * tensors) + embedding_gradients(shape, layout, work, formats) + sent + again + PROCESS
