"""Bytes that one device holds in each phase of a training step, by formula: nothing is loaded.

N are weights on one tensor rank, t tensor ranks, T tokens of a micro-batch, H, I, V the sizes of hidden states, inner
layer and vocabulary, Q and K the widths of all query and of all key heads.

Sources: what an optimizer keeps follows ZeRO (arXiv:1910.02054, section 3), what a layer keeps for its backward pass
follows Korthikanti et al. (arXiv:2205.05198, section 4), counted for a layer with rotary positions, grouped key heads
and SwiGLU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from grrm.config.layout import Layout
from grrm.config.model_shape import ModelShape, Weight
from grrm.config.stage_config import RLConfig, StageConfig
from grrm.config.workload import JudgeModel, Workload

GIB = 2**30
BLOCK = 64  # positions of a cache block
PREFILL_TOKENS = 4096  # of one prefill pass of the rollout engine
# Of the output layer, at a time: tokens, and float32 copies of their logits on the way to a gradient.
HEAD_TOKENS = {"cpu": 256, "gpu": 1024}
HEAD_COPIES = {"cpu": 1, "gpu": 5}
HEAP_GAPS = 0.08  # of what a CPU's allocator hands out, which was measured from none to a quarter
JUDGE_SEQUENCES = 256  # that a judge writes at a time, at most
MOST_PACKED = 4 * GIB  # weights that the CPU decoder copies into the layout of its BLAS


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of a number: a weight, one that is computed, a gradient, and what the optimizer keeps for a weight."""

    device: Literal["cpu", "gpu"]
    weight: int
    computed: int
    gradient: int
    state: int

    @classmethod
    def of(cls, config: StageConfig) -> Formats:
        """As Trainer trains: on a CPU all is float32; O2 has weights in 16 bits and a float32 copy to update."""
        device = config.device or "gpu"
        moments = 4 if config.optim == "adamw_16bit_moment" else 8
        if device == "cpu" or not (config.bf16 or config.fp16):
            return cls(device, 4, 4, 4, moments)
        if config.fp16_opt_level != "O2":
            return cls(device, 4, 2, 4, moments)
        return cls(device, 2, 2, 4 if config.amp_master_grad else 2, moments + 4)


@dataclass(frozen=True, slots=True)
class Part:
    """The purpose and number of some bytes, and what they follow from."""

    name: str
    size: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """One device's memory: what is always there, and what each phase adds, with the parts of each."""

    held: tuple[Part, ...]
    update: tuple[Part, ...]
    scoring: tuple[Part, ...]
    rollout: tuple[Part, ...]  # less the cache
    sequences: int  # that rollouts ask for; 0 without rollouts
    bytes_per_sequence: int  # bytes of a cache for the longest prompt and response
    not_recomputed: int  # activations without recompute
    judging: tuple[Part, ...] = ()  # less the cache, of judges on this device that write
    bytes_per_reply: int = 0  # bytes of a cache for a judge's longest prompt and reply

    def total(self, phase: Iterable[Part]) -> int:
        """Bytes that are held and that the phase adds; negative parts are released for it."""
        return sum(part.size for part in (*self.held, *phase))

    def peak(self, sequences: int) -> int:
        """The most bytes of any phase, with a cache for so many sequences of full length, or as many as are asked."""
        cached = min(sequences, self.sequences) * self.bytes_per_sequence
        judged = self.total(self.judging) + sequences * self.bytes_per_reply
        return max(self.total(self.update), self.total(self.scoring), self.total(self.rollout) + cached, judged)

    def sequences_within(self, limit: int, fraction: float) -> int:
        """Sequences of full length that a cache holds in a fraction of what rollouts leave free of `limit` bytes."""
        free = int(fraction * (limit - self.total(self.rollout)))
        return max(0, min(self.sequences, free // self.bytes_per_sequence)) if self.bytes_per_sequence else 0

    def replies_within(self, limit: int, fraction: float) -> int:
        """Replies of full length that a judge's cache holds in a fraction of what it leaves free of `limit` bytes."""
        free = int(fraction * (limit - self.total(self.judging)))
        return max(0, min(JUDGE_SEQUENCES, free // self.bytes_per_reply)) if self.bytes_per_reply else 0


def memory_of(config: StageConfig, shape: ModelShape, layout: Layout, work: Workload) -> Memory:
    """The plan for one device; every size is an upper bound for rows of the longest length."""
    formats = Formats.of(config)
    n, trained = shape.numbers(layout.tensor), list(work.trained(shape.weights(layout.tensor), shape.hidden))
    n_trained = sum(weight.numbers for weight in trained)
    weights = n * formats.weight // (layout.sharding if layout.stage == 3 else 1)
    gradients = n_trained * formats.gradient // (layout.sharding if layout.stage >= 2 else 1)
    is_even = "split_param" in config.sharding_parallel_config
    states = formats.state * largest_shard(trained, layout, is_even)
    copied = layout.data > 1 and layout.stage == 0  # Paddle's reducer of data parallelism joins what it sends
    critic_gradients = n * formats.gradient * work.has_critic
    critic = (
        weights
        + critic_gradients * (1 + copied)
        + formats.state * largest_shard(shape.weights(layout.tensor), layout, is_even)
    )
    held = [
        Part("weights", weights, f"{n / 1e9:.2f} billion of {formats.weight} bytes"),
        *([Part("reference policy", weights, "for the KL term")] if work.has_reference else []),
        Part("gradients", gradients, f"{formats.gradient} bytes a weight"),
        *([Part("buffers of gradients", gradients, "to send them to other data ranks")] if copied else []),
        Part("optimizer states", states, f"{formats.state} bytes a weight, divided by {layout.sharding}"),
        *([Part("critic", critic, "weights, gradients and optimizer states")] if work.has_critic else []),
        Part("rotary tables", rotary_bytes(shape), f"{shape.positions:,} positions, for all layers"),
        *_judges(work.judges, formats, parked=False),
    ]
    not_recomputed = activations(shape, replace(layout, recompute=""), work.tokens, work.longest, formats)
    retained = activations(shape, layout, work.tokens, work.longest, formats)
    if work.has_critic:  # whose passes are apart from the policy's
        critic_layout = replace(layout, recompute=work.critic_recompute)
        retained = max(retained, activations(shape, critic_layout, work.tokens, work.longest, formats))
    update: tuple[Part, ...] = (
        Part("activations", retained, f"{work.tokens:,} tokens, recompute {layout.recompute or 'off'}"),
        Part("output layer", output_layer(shape, layout, work.scored, formats), f"{work.scored:,} tokens, in chunks"),
    )
    if formats.device == "cpu":
        allocated = gradients * (1 + copied) + states + sum(part.size for part in update)
        # What recompute frees and takes again, layer by layer, lies between what layers keep.
        gaps = int(HEAP_GAPS * allocated) + (retained if layout.recompute else 0)
        update = (*update, Part("gaps of the heap", gaps, "freed memory between blocks in use"))
    scoring: tuple[Part, ...] = ()
    if work.scored_only:
        passing = pass_bytes(shape, layout, work.scored_only, formats)
        chunk = min(work.scored_only, HEAD_TOKENS[formats.device]) * shape.vocabulary // layout.tensor
        scoring = (Part("scoring", passing + 4 * chunk * HEAD_COPIES[formats.device], f"{work.scored_only:,} tokens"),)
    rollout = _rollout(config, shape, layout, work, formats) if work.sequences else ()
    judging, judged = _judging(work.judges, formats)
    if config.release_grads or "enable_release_grads" in config.sharding_parallel_config:
        released = (Part("gradients released", -gradients - critic_gradients),)
        scoring, rollout = (*scoring, *released), (*rollout, *released) if rollout else ()
        judging = (*judging, *released) if judging else ()
    cache_bytes = sequence_bytes(shape, work.positions, formats) // layout.sampling_ranks if work.sequences else 0
    return Memory(tuple(held), update, scoring, rollout, work.sequences, cache_bytes, not_recomputed, judging, judged)


def largest_shard(trained: Iterable[Weight], layout: Layout, is_even: bool) -> int:
    """Weights whose states one sharding rank keeps, at most.

    Paddle hands whole tensors, largest first, to the rank with the fewest numbers, so that a large embedding stays on
    one rank; with split_param (`is_even`) it cuts them.
    """
    sizes = sorted((weight.numbers for weight in trained), reverse=True)
    if layout.stage == 0:
        return sum(sizes)
    if is_even:
        return -(-sum(sizes) // layout.sharding)
    shards = [0] * layout.sharding
    for size in sizes:
        shards[shards.index(min(shards))] += size
    return max(shards)


def activations(shape: ModelShape, layout: Layout, tokens: int, longest: int, formats: Formats) -> int:
    """Activations that layers keep for the backward pass, and its own work in the layer where it is.

    Without recompute a layer keeps 4 H + 2 Q + 2 K + 3 I numbers a token: both sums that are normalised and their
    norms, queries, keys, values and what attention makes of them, gate, up and their product. Attention's, inner and
    with sequence parallel also hidden numbers are divided by t.

    Recompute keeps a layer's input, H, and one whole layer at a time; full_attn leaves out queries, keys and values and
    attention's result. Without flash attention on a GPU, and in PaddleNLP's unfused norms and rotations, more is kept:
    see `_unfused`.
    """
    hidden = shape.hidden / (layout.tensor if layout.sequence else 1)
    queries, keys = (heads * shape.head_width / layout.tensor for heads in (shape.heads, shape.key_heads))
    inner = shape.inner / layout.tensor
    attended = 2 * queries + 2 * (queries if formats.device == "cpu" else keys)  # the CPU's layers repeat key heads
    rest = (4 + 2 * shape.routed) * hidden + 3 * inner  # a copy for each expert, and what it answers
    extra = _unfused(shape, layout, longest) if formats.device == "gpu" else 0
    layer = rest + attended + extra
    retained = {"": layer, "full": hidden, "full_attn": rest, "core_attn": layer - _scores(shape, layout, longest)}
    n_recomputed = 0 if layout.recompute == "" else 1
    backward = 3 * inner + 2 * hidden
    numbers = tokens * (shape.layers * retained[layout.recompute] + n_recomputed * layer + backward)
    return int(numbers * formats.computed)


def _unfused(shape: ModelShape, layout: Layout, longest: int) -> float:
    """Further numbers a token and layer, of PaddleNLP's operators that are not fused.

    A norm keeps two float32 copies of its input, a rotation both factors of two products, and attention repeated keys
    and values, its scores and their softmax: float32 and 16 bits of each head and position.
    """
    width = shape.head_width / layout.tensor
    numbers = 0.0
    if not layout.fused_norm:
        numbers += 2 * 4 * shape.hidden / (layout.tensor if layout.sequence else 1)
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
    """Logits of a chunk of tokens in float32, the gradient of V x H weights beside them, and 3 H numbers a token.

    Where the weights are the embedding's as well, the gradients of both are there before they are added up.
    """
    if not scored:
        return 0
    words = shape.vocabulary / layout.tensor
    logits = min(scored, HEAD_TOKENS[formats.device]) * words * 4 * HEAD_COPIES[formats.device]
    sums = words * shape.hidden * 4 * ((1 if formats.device == "cpu" else 2) + shape.tied)
    return int(logits + sums + 3 * scored * shape.hidden * formats.computed)


def rotary_bytes(shape: ModelShape) -> int:
    """Cosines and sines in float32, of every position and number of a head."""
    return 2 * 4 * shape.positions * shape.head_width


def sequence_bytes(shape: ModelShape, positions: int, formats: Formats) -> int:
    """Keys and values of one sequence in whole blocks: 2 layers K numbers a position."""
    blocks = -(-positions // BLOCK)
    return blocks * BLOCK * 2 * shape.layers * shape.key_heads * shape.head_width * formats.weight


def _rollout(
    config: StageConfig, shape: ModelShape, layout: Layout, work: Workload, formats: Formats
) -> tuple[Part, ...]:
    """The engine's copy of the weights where it has one, and the work of a pass."""
    sampling = replace(layout, tensor=layout.sampling_ranks, sequence=False)
    passing = pass_bytes(shape, sampling, PREFILL_TOKENS, formats) + 3 * 4 * work.sequences * shape.vocabulary
    copied = 0 if layout.together else _copied(config, shape.numbers(), layout, formats)
    copy = [Part("weights for rollouts", copied, "whole, for the engine")] if copied else []
    if work.lora_rank:
        targets = sum(weight.numbers for weight in shape.weights() if weight.name in work.lora_targets)
        copy.append(Part("weights without adapters", targets * formats.weight, "while theirs are merged"))
    return (*copy, Part("rollout pass", passing, f"{PREFILL_TOKENS:,} prompt tokens"))


def _copied(config: StageConfig, n: int, layout: Layout, formats: Formats) -> int:
    """Bytes of the policy's `n` weights that the engine of a rank that samples alone copies: all, where a rank trains a
    part, and on a CPU those in the layout of the BLAS."""
    gathered = n * formats.weight if layout.tensor > 1 else 0
    if formats.device == "gpu" or n * 4 > MOST_PACKED:
        return gathered
    width = 1 if isinstance(config, RLConfig) and config.rollout_quant_type else 2 if config.bf16 else 4
    return gathered + n * width


def _judges(judges: Iterable[JudgeModel], formats: Formats, *, parked: bool) -> Iterator[Part]:
    """The weights of judges: of those that leave the device while the policy is trained, or of the others."""
    for judge in judges:
        if judge.shape is not None and judge.is_parked(formats.device) == parked:
            n, width = judge.shape.numbers(), judge.weight(formats.device)
            note = f"{n / 1e9:.2f} billion of {width} bytes, {judge.shape.name}"
            yield Part(f"judge {judge.title}", n * width + rotary_bytes(judge.shape), note)


def _judging(judges: Collection[JudgeModel], formats: Formats) -> tuple[tuple[Part, ...], int]:
    """The judges that are on the device meanwhile, the work of the one that needs most, and a sequence in its cache."""
    largest: tuple[tuple[Part, ...], int] = ((), 0)
    for judge in judges:
        if judge.shape is None or not judge.positions:
            continue
        width, shape = judge.weight(formats.device), judge.shape
        own = replace(formats, weight=width, computed=width)
        passing = pass_bytes(shape, Layout(), PREFILL_TOKENS, own) + 3 * 4 * JUDGE_SEQUENCES * shape.vocabulary
        parts = [Part("judge's pass", passing, f"{PREFILL_TOKENS:,} prompt tokens")]
        if formats.device == "cpu" and shape.numbers() * 4 <= MOST_PACKED:
            parts.append(Part("judge's weights for its pass", shape.numbers() * 4, "in the layout of the BLAS"))
        reply = sequence_bytes(shape, judge.positions, own)
        largest = max(largest, (tuple(parts), reply), key=lambda need: sum(part.size for part in need[0]) + need[1])
    return (*_judges(judges, formats, parked=True), *largest[0]), largest[1]
