"""An argument file written anew with the smallest layout that fits the devices: `grrm plan --write`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from grrm.config.key import aliases_of, as_written
from grrm.config.layout import Layout
from grrm.config.load import parse_overrides
from grrm.config.memory import GIB
from grrm.config.memory_rows import FEWEST_SEQUENCES, NOT_IN_STAGES, changes_of, named_model, smallest_fitting
from grrm.config.model_shape import model_shape
from grrm.config.plan import Machine, prepared_file
from grrm.data.atomic import write_bytes
from grrm.errors import UserError
from grrm.strict_yaml import load_yaml

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
    config = prepared_file(path, overrides, machine.devices).config
    if config.pipeline_parallel_degree > 1:
        raise UserError(NOT_IN_STAGES)
    shape = model_shape(machine.model or named_model(config))
    smallest = smallest_fitting(config, shape, machine.devices, machine.memory)
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
    if machine.model and shape.name.startswith("Qwen2.5-"):
        text = _of_size(text, shape.name)
    older = aliases_of(type(config))
    changed = {older.get(name, name): _in_yaml(value) for name, value in parse_overrides(overrides).items()}
    text = _with_keys(text, changed | changes_of(config, layout, Layout.of(config, machine.devices)), older)
    header = "\n".join(row for row in text.splitlines() if not row.startswith(PLANNED))
    write_bytes(out, f"{line}\n{header}\n".encode())
    return line


def _of_size(text: str, name: str) -> str:
    """`text` with the size in `name` (Qwen2.5-14B) in place of that in every name of such a model, its case kept."""
    size = name.rpartition("-")[2]

    def renamed(match: re.Match[str]) -> str:
        return match[1] + (size if match[0].endswith("B") else size.lower())

    return _SIZE.sub(renamed, text)


def _with_keys(text: str, values: Mapping[str, str], older: Mapping[str, str]) -> str:
    """`text` with these values in place of those of their keys, or `older` names of them, or for new keys at the end.

    Raises UserError for a mapping in braces, as in JSON, where no line can be added at the end.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "the file has been read"
    if root.flow_style:
        raise UserError("--write takes an argument file with a `key: value` on each line, not JSON: rewrite it so.")
    written = [(older.get(name.value, name.value), name.start_mark.index, _end_of(value)) for name, value in root.value]
    for key, begin, end in reversed(written):
        if key in values:
            earlier = text[begin:end].rstrip()  # without the line feed behind a block of text
            text = f"{text[:begin]}{key}: {values[key]}{text[begin + len(earlier) :]}"
    new = values.keys() - {key for key, _, _ in written}
    return text.rstrip() + "".join(f"\n{key}: {value}" for key, value in values.items() if key in new) + "\n"


def _end_of(node: yaml.Node) -> int:
    """The index behind a value; that of a block is its last value's, as YAML adds the comments behind it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _in_yaml(value: str | bool) -> str:
    """The value of an override as YAML has to have it to be read as the command line reads it."""
    if isinstance(value, bool):
        return as_written(value)
    try:
        read = load_yaml(f"key: {value}")["key"]
    except yaml.YAMLError:
        read = None
    is_read_alike = isinstance(read, list | dict | int | float) and not isinstance(read, bool)
    means_the_same = value in ("true", "false", "null") or is_read_alike or read == value.strip()
    return value if means_the_same else json.dumps(value, ensure_ascii=False)
