"""Bytes that one device holds in each phase of a training step, by formula: nothing is loaded.

What an optimizer keeps follows ZeRO (arXiv:1910.02054, section 3), what passes take is in `grrm.config.passes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from grrm.config.layout import Layout
from grrm.config.model_shape import ModelShape, Weight
from grrm.config.passes import (
    HEAD_COPIES,
    HEAD_TOKENS,
    Formats,
    Part,
    activations,
    heap_gaps,
    pass_bytes,
    update_phases,
)
from grrm.config.stage_config import RLConfig, StageConfig
from grrm.config.workload import JudgeModel, Workload

GIB = 2**30
BLOCK = 64  # positions of a cache block
PREFILL_TOKENS = 4096  # of one prefill pass of the rollout engine
JUDGE_SEQUENCES = 256  # that a judge writes at a time, at most
MOST_PACKED = 4 * GIB  # weights that the CPU decoder copies into the layout of its BLAS


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
    head = list(work.head(shape))
    trained = [*work.trained(shape.weights(layout.tensor), shape.hidden), *head]
    n = shape.numbers(layout.tensor) + sum(weight.numbers for weight in head)
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
    packed = _packed(config, shape, layout, work, formats)
    held = [
        Part("weights", weights, f"{n / 1e9:.2f} billion of {formats.weight} bytes"),
        *([Part("reference policy", weights, "for the KL term")] if work.has_reference else []),
        Part("gradients", gradients, f"{formats.gradient} bytes a weight"),
        *([Part("buffers of gradients", gradients, "to send them to other data ranks")] if copied else []),
        Part("optimizer states", states, f"{formats.state} bytes a weight, divided by {layout.sharding}"),
        *([Part("critic", critic, "weights, gradients and optimizer states")] if work.has_critic else []),
        Part("rotary tables", rotary_bytes(shape), f"{shape.positions:,} positions, for all layers"),
        *([Part("packed weights", packed, "in the layout of the BLAS, for rollouts")] if packed else []),
        *_judges(work.judges, formats, parked=False),
    ]
    not_recomputed = activations(shape, replace(layout, recompute=""), work.tokens, work.longest, formats)
    update = _update(shape, layout, work, formats, gradients * (1 + copied) + states)
    scoring = _scoring(shape, layout, work, formats) if work.scored_only else ()
    rollout = _rollout(shape, layout, work, formats) if work.sequences else ()
    judging, judged = _judging(work.judges, formats)
    if config.release_grads or "enable_release_grads" in config.sharding_parallel_config:
        released = (Part("gradients released", -gradients - critic_gradients),)
        scoring, rollout = (*scoring, *released), (*rollout, *released) if rollout else ()
        judging = (*judging, *released) if judging else ()
    cache_bytes = sequence_bytes(shape, work.positions, formats) // layout.sampling_ranks if work.sequences else 0
    return Memory(tuple(held), update, scoring, rollout, work.sequences, cache_bytes, not_recomputed, judging, judged)


def _update(
    shape: ModelShape, layout: Layout, work: Workload, formats: Formats, trained_bytes: int
) -> tuple[Part, ...]:
    """The phase of an update that takes most, beside `trained_bytes` of gradients and optimizer states."""
    granularities = [layout.recompute, *([work.critic_recompute] if work.has_critic else [])]  # pass after pass
    phases = [phase for value in granularities for phase in update_phases(shape, layout, value, work, formats)]
    update = max(phases, key=lambda phase: sum(part.size for part in phase))
    if formats.device == "gpu":
        return update
    gaps = heap_gaps(shape, layout, work, formats, trained_bytes + sum(part.size for part in update))
    return (*update, Part("gaps of the heap", gaps, "freed memory between blocks in use, and other buffers"))


def _scoring(shape: ModelShape, layout: Layout, work: Workload, formats: Formats) -> tuple[Part, ...]:
    passing = pass_bytes(shape, layout, work.scored_only, formats)
    chunk = min(work.scored_only, HEAD_TOKENS[formats.device]) * shape.vocabulary // layout.tensor
    return (Part("scoring", passing + 4 * chunk * HEAD_COPIES[formats.device], f"{work.scored_only:,} tokens"),)


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


def rotary_bytes(shape: ModelShape) -> int:
    """Cosines and sines in float32, of every position and number of a head."""
    return 2 * 4 * shape.positions * shape.head_width


def sequence_bytes(shape: ModelShape, positions: int, formats: Formats) -> int:
    """Keys and values of one sequence in whole blocks: 2 layers K numbers a position."""
    blocks = -(-positions // BLOCK)
    return blocks * BLOCK * 2 * shape.layers * shape.key_heads * shape.head_width * formats.weight


def _rollout(shape: ModelShape, layout: Layout, work: Workload, formats: Formats) -> tuple[Part, ...]:
    """The engine's copy of the weights where a rank trains a part and samples alone, and the work of a pass."""
    sampling = replace(layout, tensor=layout.sampling_ranks, sequence=False)
    passing = pass_bytes(shape, sampling, PREFILL_TOKENS, formats) + 3 * 4 * work.sequences * shape.vocabulary
    gathered = shape.numbers() * formats.weight if layout.tensor > 1 and not layout.together else 0
    copy = [Part("weights for rollouts", gathered, "whole, for the engine")] if gathered else []
    if work.lora_rank:
        targets = sum(weight.numbers for weight in shape.weights() if weight.name in work.lora_targets)
        copy.append(Part("weights without adapters", targets * formats.weight, "while theirs are merged"))
    return (*copy, Part("rollout pass", passing, f"{PREFILL_TOKENS:,} prompt tokens"))


def _packed(config: StageConfig, shape: ModelShape, layout: Layout, work: Workload, formats: Formats) -> int:
    """Bytes of the weights that are in products, in the layout of the BLAS: a CPU's rank that samples alone keeps them
    from one rollout to the next."""
    n = shape.numbers() - (0 if shape.tied else shape.vocabulary * shape.hidden)
    if formats.device == "gpu" or not work.sequences or layout.together or n * 4 > MOST_PACKED:
        return 0
    width = 1 if isinstance(config, RLConfig) and config.rollout_quant_type else 2 if config.bf16 else 4
    return n * width


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
