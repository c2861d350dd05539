"""From an argument file and command-line overrides to checked values; nothing here imports paddle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grrm.config.batch_plan import BatchPlan
from grrm.config.checks import (
    Launch,
    check_batches,
    check_common,
    check_device,
    check_files,
    check_launch,
    check_ranges,
    check_rl,
    check_sft,
)
from grrm.config.derive import derive_rl
from grrm.config.key_support import refuse_unsupported, switches_without_effect
from grrm.config.schema import RL_SCHEMA, SFT_SCHEMA, Schema, typed_values
from grrm.errors import UserError


@dataclass(frozen=True, slots=True)
class Prepared:
    """Checked settings: every key in `values`, those the user wrote in `given`, and a `notice` worth logging once."""

    values: dict[str, Any]
    given: dict[str, Any]
    plan: BatchPlan | None
    notice: str | None


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which plain YAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) argument file. Raises UserError when it is missing or not such a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"The argument file {os.fspath(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"The argument file {os.fspath(path)!r} is not UTF-8 text.") from error
    try:
        content = yaml.load(text, Loader=_UniqueKeys)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{os.fspath(path)}{line}: this is not valid YAML: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"{os.fspath(path)} is not valid YAML: {str(error).splitlines()[0]}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{os.fspath(path)} holds no settings; write one `key: value` per line.")
    return content


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """`--key value`, `--key=value` and a bare `--key` (= true) as a mapping. Raises UserError on anything else."""
    parsed: dict[str, str] = {}
    rest = list(overrides)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise UserError(f"Unexpected {word!r} on the command line; write settings as --key value.")
        key, separator, value = word[2:].partition("=")
        if not separator:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        parsed[key.replace("-", "_")] = value
    return parsed


def launched_processes() -> int:
    """How many processes paddle.distributed.launch started over all nodes; 1 without it."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def prepare(
    kind: str,
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    launch: Launch | None = None,
    check_machine: bool = True,
    n_prompts: int | None = None,
    check_on_device: bool = True,
) -> Prepared:
    """Read, type, derive and check one argument file of `kind` "RL" or "SFT".

    `launch` None takes the smallest number of processes that fits, and with it, or with `check_on_device` False, what
    depends on the device is left out; `check_machine` False leaves out whether files, model folders and trackers exist
    here. `n_prompts` is needed only to turn epochs into steps. Raises UserError naming the file and the key.
    """
    schema = RL_SCHEMA if kind == "RL" else SFT_SCHEMA
    raw = read_yaml(path)
    try:
        given = typed_values(schema, raw)
        given.update(typed_values(schema, parse_overrides(overrides)))
        prepared = _checked(schema, given, launch, n_prompts)
        values = prepared.values
        if launch is not None and check_on_device:
            values["device"] = values["device"] or launch.device
            check_device(values, launch.device)
        if check_machine:
            check_files(values, ("actor_model_name_or_path", "model_name_or_path", "tokenizer_name_or_path"))
        return prepared
    except UserError as error:
        raise UserError(f"{os.fspath(path)}: {error}") from error


def _checked(schema: Schema, given: dict[str, Any], launch: Launch | None, n_prompts: int | None) -> Prepared:
    values = {**schema.fresh_defaults(), **given}
    refuse_unsupported(schema.kind, values)
    if schema.kind == "RL":
        derive_rl(values)
    check_ranges(values)
    check_common(values)
    if schema.kind == "RL":
        check_rl(values, given)
    else:
        check_sft(values)
    data_ranks = check_launch(values, launch or Launch("cpu", _smallest_world(values)))
    plan = None
    if schema.kind == "RL":
        plan = check_batches(values, data_ranks, n_prompts, given)
        values["gradient_accumulation_steps"] = plan.gradient_accumulation_steps
    return Prepared(values, given, plan, switches_without_effect(schema.kind, given))


def _smallest_world(values: Mapping[str, Any]) -> int:
    return int(max(values["tensor_parallel_degree"], 1) * max(values["sharding_parallel_degree"], 1))
