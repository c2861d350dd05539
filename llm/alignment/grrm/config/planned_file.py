"""An argument file for another model and other devices: its comments and values, with the layout that fits there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grrm.config.checks import Launch
from grrm.config.layout import Layout, smallest_layout
from grrm.config.load import parse_overrides, prepare, read_yaml
from grrm.config.memory import GIB, Memory, memory_of
from grrm.config.memory_rows import FEWEST_SEQUENCES, changes_of, fits, named_model
from grrm.config.model_shape import ModelShape, model_shape
from grrm.config.plan import Machine, stage_of_file
from grrm.config.workload import Workload
from grrm.data.atomic import atomic_path
from grrm.errors import UserError

PLANNED = "# Planned for"  # how the line begins that names the hardware
_SIZE = re.compile(r"(qwen2\.?5[-_](?:[a-z]+[-_])?)\d+(?:\.5)?b(?![a-z0-9])", re.IGNORECASE)


def write_planned(path: str, machine: Machine, out: Path, overrides: Sequence[str] = ()) -> str:
    """Write the file of `path` for `machine` to `out`, which must not exist; returns the line that names the hardware.

    Where the machine names a Qwen2.5 model, its size replaces that in names and paths of models, comments included. The
    file stays as it is but for the overrides and the keys of the smallest layout that fits. Raises UserError without a
    limit on memory, and where nothing fits.
    """
    if machine.memory is None:
        raise UserError("--write needs --memory, the memory of one device: the layout follows from it.")
    if out.exists():
        raise UserError(f"{out} exists already; give a new file as --write.")
    stage, off_machine = stage_of_file(read_yaml(path)), {"check_machine": False, "check_on_device": False}
    config: Any = prepare(stage.config, path, overrides, Launch("cpu", machine.devices), **off_machine).config
    shape = model_shape(machine.model or named_model(config))
    smallest = _layout(config, shape, machine.devices, machine.memory)
    if smallest is None:
        raise UserError(
            f"{shape.name} does not fit {machine.devices} devices of {machine.memory / GIB:.0f} GiB in any layout: "
            "give more devices or, in RL, servers of rollouts with --rollout_backend and --rollout_servers"
        )
    layout, memory = smallest
    line = (
        f"{PLANNED} {machine.devices} {(config.device or 'gpu').upper()}s of {machine.memory / GIB:.0f} GiB: "
        f"{memory.peak(FEWEST_SEQUENCES) / GIB:.0f} GiB on each (`grrm plan`, not measured)."
    )
    text = Path(path).read_text(encoding="utf-8")
    if machine.model:
        text = _of_size(text, shape.name)
    text = _with_keys(text, parse_overrides(overrides))
    text = _with_keys(text, changes_of(config, layout, Layout.of(config, machine.devices)))
    header = "\n".join(row for row in text.splitlines() if not row.startswith(PLANNED))
    with atomic_path(out) as temporary:
        temporary.write_text(f"{line}\n{header}\n", encoding="utf-8")
    return line


def _layout(config: Any, shape: ModelShape, devices: int, limit: int) -> tuple[Layout, Memory] | None:
    def memory(of: Layout) -> Memory:
        return memory_of(config, shape, of, Workload.of(config, of.rows))

    smallest = smallest_layout(config, shape, devices, lambda of: fits(memory(of), limit))
    return None if smallest is None else (smallest, memory(smallest))


def _of_size(text: str, name: str) -> str:
    """`text` with the size in `name` (Qwen2.5-14B) in place of that in every name of such a model, its case kept."""
    size = name.rpartition("-")[2]

    def renamed(match: re.Match[str]) -> str:
        return match[1] + (size if match[0].endswith("B") else size.lower())

    return _SIZE.sub(renamed, text)


def _with_keys(text: str, values: Mapping[str, str]) -> str:
    """`text` with these values, in the lines of their keys or, for new keys, at the end."""
    for key, value in values.items():
        text, n = re.subn(rf"^{key}:[^#\n]*?(\s*(#.*)?)$", rf"{key}: {value}\1", text, flags=re.MULTILINE)
        if not n:
            text = f"{text.rstrip()}\n{key}: {value}\n"
    return text
