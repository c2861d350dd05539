"""The memory part of `grrm plan`: what a device holds, whether that fits, and the smallest layout that does."""

from __future__ import annotations

import re
from collections.abc import Iterable

from grrm.config.key import as_written
from grrm.config.layout import Layout, smallest_layout
from grrm.config.memory import GIB, Memory, memory_of
from grrm.config.model_shape import ModelShape, model_shape
from grrm.config.passes import Formats, Part
from grrm.config.stage_config import RewardModelConfig, RLConfig, SFTConfig, StageConfig
from grrm.config.workload import CANDIDATES, Workload
from grrm.errors import UserError

# Of a device's memory, for its context, the buffers of collectives, and the gaps that an allocator leaves.
RESERVED = 0.08
FEWEST_SEQUENCES = 8  # of full length at a time; with fewer a layout does not count as fitting
NOT_IN_STAGES = "--memory does not plan stages of a pipeline; set pipeline_parallel_degree to 1 or leave it out"
DOES_NOT_FIT = ("fits as written", "no")  # name and value of a row
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([MGT])(?:i?B)?)?", re.IGNORECASE)
_UNITS = {"M": 2**20, "G": GIB, "T": 2**40}


def parse_memory(text: str) -> int:
    """Bytes in a size such as 80G, 80GB, 81559MiB or, in GiB, 80: powers of two, as GPUs are named.

    Raises UserError otherwise.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UserError(f"--memory is {text!r}; give the memory of one device, such as 80G or 24G")
    return int(float(match[1]) * _UNITS[(match[2] or "G").upper()])


def shape_of_file(config: StageConfig, model: str | None) -> ModelShape | None:
    """The shape of `model`, or of the model that the file names; None where only the file names one, unknown here."""
    if model is not None:
        return model_shape(model)
    named = named_model(config)
    try:
        return model_shape(named)
    except UserError:
        return None


def named_model(config: StageConfig) -> str:
    """Return the model that a file names."""
    if isinstance(config, RLConfig):
        return config.actor_model_name_or_path
    if isinstance(config, SFTConfig):
        return config.model_name_or_path or config.init_from_config or ""
    return str(getattr(config, "model_name_or_path", ""))


def memory_rows(
    config: StageConfig, shape: ModelShape | None, devices: int, limit: int | None
) -> list[tuple[str, str, str]]:
    """Rows of the plan. `limit` bytes a device has say what fits; None leaves that out.

    Raises UserError where a limit is given for a model whose shape is not known, or for stages of a pipeline.
    """
    if config.pipeline_parallel_degree > 1:
        if limit is not None:
            raise UserError(NOT_IN_STAGES)
        return [("memory", "unknown", "not planned for stages of a pipeline")]
    if shape is None:
        if limit is not None:
            model_shape(named_model(config))  # says why it is not known
        return [("model", "unknown", f"{named_model(config)} is not here: memory needs its config.json as --model")]
    work, layout = Workload.of(config, config.per_device_train_batch_size), Layout.of(config, devices)
    memory = memory_of(config, shape, layout, work)
    formats = Formats.of(config)
    is_measured = formats.device == "cpu" and not shape.experts
    planned = "planned; measured within 10 %" if is_measured else "planned, not measured"
    rows = [
        ("model", shape.name, f"{shape.numbers() / 1e9:.2f} billion weights"),
        (f"memory of one {formats.device.upper()}", planned, "every row as long as it may be"),
        *_parts(memory.held),
        *_parts(memory.update),
    ]
    if layout.recompute:
        rows.append(("  activations without recompute", _gib(memory.not_recomputed), ""))
    rows += [_total("while updating", memory, memory.update), *_without_gradient(memory, work)]
    rows += [
        (f"judge {judge.title}", "unknown", f"{judge.folder} is not here: its weights are not counted")
        for judge in work.judges
        if judge.shape is None
    ]
    if isinstance(config, RewardModelConfig) and config.reward_model == "ranker":
        rows.append(("  groups", f"{CANDIDATES} candidates", "assumed"))
    return rows if limit is None else rows + _verdict(config, shape, layout, memory, devices, limit)


def _without_gradient(memory: Memory, work: Workload) -> list[tuple[str, str, str]]:
    """Of scoring, sampling and judging, where a run does them."""
    rows: list[tuple[str, str, str]] = []
    if memory.scoring:
        rows += [*_parts(memory.scoring), _total("while scoring", memory, memory.scoring)]
    if memory.rollout:
        cache = f"{memory.sequences} sequences of {work.positions:,} tokens, {_gib(memory.bytes_per_sequence)} each"
        rows += [
            *_parts(memory.rollout),
            ("  KV cache, all at full length", _gib(memory.sequences * memory.bytes_per_sequence), cache),
            _total("while sampling, less the cache", memory, memory.rollout),
        ]
    if memory.judging:
        rows += [
            *_parts(memory.judging),
            ("  KV cache of one reply of the judge", _gib(memory.bytes_per_reply), "the longest prompt and reply"),
            _total("while judging, less the cache", memory, memory.judging),
        ]
    return rows


def usable(limit: int) -> int:
    """Bytes of a device's memory that a plan may use."""
    return int(limit * (1 - RESERVED))


def fits(memory: Memory, limit: int) -> bool:
    """True if every phase fits, with a cache of some sequences of full length."""
    return memory.peak(FEWEST_SEQUENCES) <= usable(limit)


def changes_of(config: StageConfig, layout: Layout, written: Layout) -> dict[str, str]:
    """The keys that turn a file into one of `layout`; the rows of an optimizer step stay what they are."""
    keys = {
        "tensor_parallel_degree": (layout.tensor, written.tensor),
        "sequence_parallel": (layout.sequence, written.sequence),
        "sharding": (f"stage{layout.stage}" if layout.stage else "", f"stage{written.stage}" if written.stage else ""),
        "recompute": (bool(layout.recompute), bool(written.recompute)),
        "per_device_train_batch_size": (layout.rows, written.rows),
        "rollout_tensor_parallel_degree": (layout.sampling_ranks, written.sampling_ranks),
    }
    changes = {key: as_written(new) for key, (new, old) in keys.items() if new != old}
    if layout.recompute not in ("", config.recompute_granularity):
        changes["recompute_granularity"] = layout.recompute
    if config.sharding_parallel_degree > 0 and config.sharding_parallel_degree != layout.sharding:
        changes["sharding_parallel_degree"] = "-1"  # all ranks that tensor parallel leaves
    if not isinstance(config, RLConfig):  # in RL it is derived
        before, now = (of.rows * of.sharding * of.data for of in (written, layout))
        accumulated, rest = divmod(config.gradient_accumulation_steps * before, now)
        if not rest and accumulated != config.gradient_accumulation_steps:
            changes["gradient_accumulation_steps"] = str(accumulated)
    return changes


def smallest_fitting(config: StageConfig, shape: ModelShape, devices: int, limit: int) -> tuple[Layout, Memory] | None:
    """The `smallest_layout` that fits devices with `limit` bytes each, and its memory; None where none does."""

    def memory(of: Layout) -> Memory:
        return memory_of(config, shape, of, Workload.of(config, of.rows))

    smallest = smallest_layout(config, shape, devices, lambda layout: fits(memory(layout), limit))
    return None if smallest is None else (smallest, memory(smallest))


def _verdict(
    config: StageConfig, shape: ModelShape, layout: Layout, written: Memory, devices: int, limit: int
) -> list[tuple[str, str, str]]:
    reserved = f"{RESERVED:.0%} of {_gib(limit)} stay free for context, collectives and fragments"
    fit = ("fits as written", "yes") if fits(written, limit) else DOES_NOT_FIT
    rows = [(*fit, f"{_gib(written.peak(FEWEST_SEQUENCES))}; {reserved}")]
    if isinstance(config, RLConfig) and written.sequences:
        n = written.sequences_within(limit, config.rollout_memory_fraction)
        note = f"rollout_max_num_seqs {written.sequences}; shorter ones leave room for more"
        rows.append(("sequences of full length at once", str(n), note))
    if isinstance(config, RLConfig) and written.judging:
        n = written.replies_within(limit, config.rollout_memory_fraction)
        rows.append(("judge's replies of full length at once", str(n), "shorter ones leave room for more"))
    for n in (devices * 2**i for i in range(5)):
        fitting = smallest_fitting(config, shape, n, limit)
        if fitting is not None:
            smallest, needed = fitting[0], _gib(fitting[1].peak(FEWEST_SEQUENCES))
            said = ", ".join(f"{key}: {value}" for key, value in changes_of(config, smallest, layout).items())
            if n == devices:
                return [*rows, ("smallest layout that fits", said or "as written", needed)]
            more = f"with {n} devices, --devices {n}: {said or 'as written'}, {needed}"
            return [*rows, ("smallest layout that fits", f"none on {devices} device(s)", more)]
    remedy = "lower the lengths, or take devices with more memory"
    return [*rows, ("smallest layout that fits", "none", remedy)]


def _parts(parts: Iterable[Part]) -> list[tuple[str, str, str]]:
    return [(f"  {part.name}", _gib(part.size), part.note) for part in parts]


def _total(name: str, memory: Memory, phase: tuple[Part, ...]) -> tuple[str, str, str]:
    return (name, _gib(memory.total(phase)), "")


def _gib(size: int) -> str:
    return f"{size / GIB:,.2f} GiB"
