"""Judges of the user's own: a function from groups to verdicts, sync or async, named `module:function`."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticSchemaGenerationError, TypeAdapter, create_model

from grrm.errors import UserError
from grrm.gqm.groups import Group, Status, Verdict, unscored
from grrm.judges.deadline import in_thread
from grrm.judges.spec import JudgeOptions, Process, read_options
from grrm.rewards.protocol import check_verdict

logger = logging.getLogger(__name__)
JudgeFunction = Callable[..., "Sequence[Verdict] | Awaitable[Sequence[Verdict]]"]


def is_plug_in(name: str) -> bool:
    """True for `module:function` and `folder/file.py:function`."""
    return ":" in name


class PlugInOptions(JudgeOptions):
    """Keyword arguments of the function, which are checked once it is loaded."""

    model_config = ConfigDict(extra="allow")

    def open(self, process: Process) -> PlugInJudge:
        """Open the function as a judge. Raises UserError as `load_plug_in`."""
        return load_plug_in(process.name, self.model_extra or {})


@dataclass
class PlugInJudge:
    """Verdicts from `function`, called with all groups of a step and with `options` as keyword arguments.

    An async function runs in its own event loop, so it can process all groups concurrently. On OSError, which HTTP
    libraries raise, its groups are JUDGE_UNREACHABLE, on TimeoutError JUDGE_TIMEOUT, and the log has the error; every
    other exception is a bug of the function and propagates. An answer that does not fit the groups raises ValueError.
    """

    function: JudgeFunction
    options: Mapping[str, object]
    name: str

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        try:
            answer = self.function(groups, **self.options)
            if inspect.isawaitable(answer):  # in a thread, for the caller may be in an event loop, as notebooks are
                answer = in_thread(f"judge {self.name}", partial(asyncio.run, _awaited(answer))).result()
            verdicts = list(answer)
        except (OSError, asyncio.TimeoutError) as error:
            logger.warning("judge %s gave no verdict: %s: %s", self.name, type(error).__name__, error)
            is_late = isinstance(error, TimeoutError | asyncio.TimeoutError)
            status = Status.JUDGE_TIMEOUT if is_late else Status.JUDGE_UNREACHABLE
            return unscored(groups, status)
        self._check(groups, verdicts)
        return verdicts

    def _check(self, groups: Sequence[Group], verdicts: Sequence[Verdict]) -> None:
        if len(verdicts) != len(groups) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
            raise ValueError(f"judge {self.name!r} must return one Verdict per group, {len(groups)} in all")
        for group, verdict in zip(groups, verdicts, strict=True):
            try:
                check_verdict(group, verdict)
            except ValueError as error:
                raise ValueError(f"judge {self.name!r}, group {group.group_id!r}: {error}") from error


async def _awaited(answer: Awaitable[Sequence[Verdict]]) -> Sequence[Verdict]:
    return await answer


def check_plug_in(name: str) -> None:
    """Raises UserError for a name whose module or file is not there; runs nothing of it."""
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        raise UserError(f"judge {name!r} is no name of a function; write module:function or FILE.py:function")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise UserError(f"judge {name!r}: there is no file {module!r}; give the path of a .py file")
        return
    try:
        is_there = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # of a package that is not there, or a name that cannot be one
        is_there = False
    if not is_there:
        raise UserError(
            f"judge {name!r}: there is no module {module!r}; put its folder on PYTHONPATH, or give FILE.py:function"
        )


def load_plug_in(name: str, options: Mapping[str, object]) -> PlugInJudge:
    """The judge called `module:function`, where `module` is importable or the path of a .py file.

    Raises UserError for one that is not there, is not callable, or does not take these options.
    """
    check_plug_in(name)
    module, _, attribute = name.rpartition(":")
    loaded = _from_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    function = getattr(loaded, attribute, None)
    if not callable(function):
        raise UserError(f"judge {name!r}: {module} has no function {attribute!r}; name one that it defines")
    parameters = list(_signature(function).parameters.values())
    if not parameters:
        raise UserError(f"judge {name!r} takes no groups; let its first argument be the groups to judge")
    chosen = read_options(_options_of(parameters[1:]), options, f"option of judge {name!r}")
    return PlugInJudge(function, {option: getattr(chosen, option) for option in options}, name)


def _options_of(parameters: Sequence[inspect.Parameter]) -> type[BaseModel]:
    """The parameters as options, of the types that they are annotated with."""
    fields: dict[str, Any] = {
        parameter.name: (_type_of(parameter), ... if parameter.default is parameter.empty else None)
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name[0] != "_"
    }
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    config = ConfigDict(extra="allow" if takes_all else "forbid", protected_namespaces=())
    return create_model("FunctionOptions", __config__=config, **fields)


def _type_of(parameter: inspect.Parameter) -> Any:
    """The type to check a plain value against; any for a class that no file can have a value of."""
    if parameter.annotation is parameter.empty or isinstance(parameter.annotation, str):
        return Any
    try:
        TypeAdapter(parameter.annotation)
    except PydanticSchemaGenerationError:
        return Any
    return parameter.annotation


def _signature(function: JudgeFunction) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, TypeError):  # annotations with names for type checkers alone
        return inspect.signature(function)


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"grrm_plug_in_{path.stem}", path)
    assert spec is not None  # by its ending
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
