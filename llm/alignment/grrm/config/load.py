"""From an argument file and command-line overrides to a checked configuration; nothing here imports paddle."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from grrm.config.batch_plan import BatchPlan
from grrm.config.checks import Launch, check_adapters, check_common, check_device, check_launch
from grrm.config.derive import check_pipeline, derive_common, derive_device, derive_trackers
from grrm.config.key import By, Section, aliases_of, keys_of
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig, StageConfig
from grrm.config.stages import STAGES, stage_of
from grrm.config.values import is_hub_name
from grrm.config.workload import judge_folders
from grrm.errors import UserError, nearest_name
from grrm.small_files import read_small_file
from grrm.strict_yaml import load_yaml

C = TypeVar("C", bound=StageConfig)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[C]):
    """Checked settings, and in RL their batches."""

    config: C
    plan: BatchPlan | None


def read_yaml(path: str | os.PathLike[str], *, may_be_empty: bool = False) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) argument file. Raises UserError when it is missing or not such a file."""
    try:
        text = read_small_file(path, f"argument file {os.fspath(path)!r}").decode("utf-8")
    except OSError as error:
        raise UserError(f"The argument file {os.fspath(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"The argument file {os.fspath(path)!r} is not UTF-8 text.") from error
    try:
        content = load_yaml(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{os.fspath(path)}{line}: this is not valid YAML: {error.problem}.") from error
    except RecursionError as error:
        raise UserError(f"{os.fspath(path)} is not valid YAML: its brackets are nested too deeply.") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"{os.fspath(path)} is not valid YAML: {str(error).splitlines()[0]}.") from error
    if content is None and may_be_empty:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{os.fspath(path)} holds no settings; write one `key: value` per line.")
    return content


def parse_overrides(overrides: Sequence[str]) -> dict[str, str | bool]:
    """`--key value`, `--key=value` and a bare `--key` (= True) as a mapping. Raises UserError on anything else."""
    parsed: dict[str, str | bool] = {}
    rest = list(overrides)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise UserError(f"Unexpected {word!r} on the command line; write settings as --key value.")
        key, separator, value = word[2:].partition("=")
        is_bare = not separator and (not rest or rest[0].startswith("--"))
        parsed[key.replace("-", "_")] = is_bare or (value if separator else rest.pop(0))
    return parsed


def launched_processes() -> int:
    """Return the number of processes that paddle.distributed.launch started over all nodes; 1 without it."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def explicit_values(section: type[Section], raw: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The given keys under their current names and with their declared types.

    Notes an unknown key (naming the nearest known one), a key that is given under its old and its new name with
    different values, and a value of the wrong type.
    """
    keys, aliases = keys_of(section), aliases_of(section)
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    _note_unknown([name for name in raw if aliases.get(name, name) not in keys], [*keys, *aliases], problems)
    for name, value in raw.items():
        key = keys.get(aliases.get(name, name))
        if key is None:
            continue
        if name != key.name:
            problems.notice(f"{name} is the older name of {key.name}.")
        try:
            typed = key.typed(value, str(name))
        except UserError as error:
            problems.add_key(key.name, str(error))
            continue
        if key.name in values and values[key.name] != typed:
            problems.add_key(
                key.name,
                f"{written[key.name]} and {name} are two names of one setting, given as {values[key.name]!r} and "
                f"{typed!r}; keep one of them.",
            )
        else:
            values[key.name], written[key.name] = typed, str(name)
    return values


def _note_unknown(names: Sequence[Any], valid: Sequence[str], problems: Problems) -> None:
    """One sentence for all keys of another stage's script, whose file this may be, and one for each other key."""
    elsewhere: dict[str, list[str]] = {}
    for name in names:
        script = next((stage.script for stage in STAGES if name in keys_of(stage.config)), None)
        if script is not None:
            elsewhere.setdefault(script, []).append(name)
        else:
            near = nearest_name(name, valid)
            remedy = f"did you mean {near!r}?" if near else "mend or remove it; --help of the script lists the keys."
            problems.add_key(str(name), f"Unknown key {name!r}; {remedy}")
    for script, theirs in elsewhere.items():
        quoted, more = ", ".join(map(repr, theirs)), "s" * (len(theirs) > 1)
        problems.add_key(
            theirs[0], f"Unknown key{more} {quoted}, known to {script}; start that, or remove the key{more}."
        )


def usable_values(section: type[Section], values: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """`values` without those that are refused or out of range, which are noted."""
    usable = {}
    for name, value in values.items():
        key = keys_of(section)[name]
        try:
            if key.support.by is By.REFUSED and not key.is_off(value):
                raise UserError(f"{name}: {value} is not supported: {key.support.note}.")
            key.check_range(value)
        except UserError as error:
            problems.add_key(name, str(error))
            continue
        usable[name] = value
    return usable


def prepare(
    stage: type[C],
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    launch: Launch | None = None,
    check_machine: bool = True,
    n_prompts: int | None = None,
) -> Prepared[C]:
    """Read, type, derive and check one argument file of a stage.

    `launch` None takes the smallest number of processes that fits; without a device, what depends on it is left out.
    `check_machine` False leaves out whether files, model folders and trackers exist here. `n_prompts` is needed only to
    turn epochs into steps. Raises UserError naming the file and the key, and all mistakes at once.
    """
    raw, problems = read_yaml(path), Problems()
    explicit = explicit_values(stage, raw, problems)
    explicit.update(explicit_values(stage, parse_overrides(overrides), problems))
    explicit = usable_values(stage, explicit, problems)
    prepared = _checked(stage, explicit, launch, n_prompts, problems)
    config = prepared.config
    if launch is not None and launch.device is not None:
        config = derive_device(config.model_copy(update={"device": config.device or launch.device}), problems)
        check_device(config, launch.device, problems)
    if check_machine:
        _check_files(config, problems)
        config = derive_trackers(config, problems)
    problems.raise_if_any(os.fspath(path))
    config._source, config._notices = os.fspath(path), tuple(problems.notices)
    return Prepared(config, prepared.plan)


def load_config(
    stage: type[C], path: str | os.PathLike[str], overrides: Sequence[str] = (), n_processes: int | None = None
) -> C:
    """The checked configuration of a training script, before paddle is imported; the device is looked at after that.

    `overrides` are `--key value` or `--key=value` from the command line; `n_processes` None means those that were
    launched. Raises UserError with all mistakes.
    """
    launch = Launch(world_size=launched_processes() if n_processes is None else n_processes)
    return prepare(stage, path, overrides, launch).config


def _checked(
    stage: type[C], explicit: Mapping[str, Any], launch: Launch | None, n_prompts: int | None, problems: Problems
) -> Prepared[C]:
    # A null that is the default, or stands for a value that is derived, asks for what leaving the key out asks for.
    nulls = [name for name, value in explicit.items() if value is None and keys_of(stage)[name].default is None]
    explicit = {name: value for name, value in explicit.items() if name not in nulls}
    parts, keys = stage_of(stage), set(explicit)
    config = stage(**explicit)
    config = parts.derive(derive_common(config), problems)
    check_common(config, problems)
    check_adapters(config, keys, problems)
    check_pipeline(config, problems)
    parts.check(config, keys, problems)
    data_ranks = check_launch(config, launch.world_size if launch else smallest_world(config), problems)
    if parts.plan is None or data_ranks is None:
        return Prepared(config, None)
    plan = parts.plan(config, keys, data_ranks, n_prompts, problems)
    if plan is not None:
        config = config.model_copy(update={"gradient_accumulation_steps": plan.micro_batches_per_update})
    return Prepared(config, plan)


def _check_files(config: StageConfig, problems: Problems) -> None:
    """Notes data and models that are not on this machine."""
    for folder in () if not isinstance(config, RLConfig) or problems.sentences else judge_folders(config):
        if not Path(folder).is_dir() and not is_hub_name(folder):
            problems.add(f"reward_sources names the model {folder!r}, which is no folder; train it or mend the path.")
    for key in keys_of(type(config)).values():
        path = getattr(config, key.name) if key.names else None
        if not path:
            continue
        if key.names == "file" and not Path(path).is_file():
            problems.add(f"{key.name} names the file {path!r}, which does not exist; build it or mend the path.")
        if key.names == "model" and not Path(path).is_dir() and not is_hub_name(path):
            problems.add(f"{key.name} names the folder {path!r}, which does not exist; train it or mend the path.")


def smallest_world(config: StageConfig) -> int:
    """The fewest processes that the degrees of a configuration need."""
    degrees = (config.tensor_parallel_degree, config.pipeline_parallel_degree, config.sharding_parallel_degree)
    return math.prod(max(degree, 1) for degree in degrees)


def switches_without_effect(config: StageConfig) -> str | None:
    """One sentence on the performance switches in the file that do nothing on its device; None when there are none."""
    idle: dict[str, list[str]] = {}
    for name, key in keys_of(type(config)).items():
        if name not in config.model_fields_set or key.is_off(getattr(config, name)):
            continue
        note = key.support.note if key.support.by is By.SWITCH else ""
        note = note or (key.support.on_cpu if config.device == "cpu" else "")
        if note:
            idle.setdefault(note, []).append(name)
    if not idle:
        return None
    reasons = "; ".join(f"{', '.join(names)} ({note})" for note, names in idle.items())
    return f"These performance switches have no effect here and change no result: {reasons}."
