"""Declaration of a judge: its names, its options, its needs, and the way that a process opens it."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from grrm.errors import UserError, require_known
from grrm.gqm.groups import TranslationTask
from grrm.judges.interface import Judge, OpenedGenerator
from grrm.judges.metrics import JudgeMetrics

if TYPE_CHECKING:
    from grrm.judges.value_head import RewardModelOptions
    from grrm.rewards.client import RewardClient

# A model that generates text, a reward model, a learned metric in an environment of its own, reward servers.
Needs = Literal["nothing", "generator", "reward model", "metric", "servers"]
Reference = Literal["unread", "optional", "needed"]
IN_PROCESS: tuple[Needs, ...] = ("nothing", "generator", "reward model", "metric")
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", re.ASCII)
_TYPES = {"bool_type": "true or false", "int_type": "a whole number", "float_type": "a number", "string_type": "text"}


def _not_there() -> NoReturn:
    raise UserError("the judge needs a model or servers: open it with a Process that has them")


@dataclass(frozen=True, slots=True)
class Process:
    """Provide what the process that opens a judge has for it; a judge takes what it needs.

    Attributes:
        name: the name that the judge is chosen by.
        generator: opens the model of a judge that needs a generator.
        reward_model: opens a reward model as a judge.
        client: connects to reward servers.
        model: name or file of a learned metric's model, or of a generator's.
        served_model: asks the servers of a generator without a `model` which one they have; None without servers.
        seconds: time limit of one call of a judge in another process.
        metrics: the counters of the judge.
    """

    name: str = ""
    generator: Callable[[], OpenedGenerator] = _not_there
    reward_model: Callable[[str, RewardModelOptions], Judge] = lambda name, options: _not_there()
    client: Callable[[], RewardClient] = _not_there
    model: str | None = None
    served_model: Callable[[], str | None] = lambda: None
    seconds: float = math.inf
    metrics: JudgeMetrics = field(default_factory=JudgeMetrics)


class JudgeOptions(BaseModel):
    """Declare the options of a judge, with their defaults; a subclass opens the judge."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a task that the judge can make no prompt of."""

    @abstractmethod
    def open(self, process: Process) -> Judge:
        """Open the judge with these options. Raises UserError for a model or an option that cannot be used."""


@dataclass(frozen=True, slots=True)
class JudgeSpec:
    """Describe a judge under one of its names.

    Attributes:
        name: its name in files and on command lines.
        help: what it is, in a few words.
        options: the class of its options, which opens it.
        needs: what it needs of the process that opens it.
        reference: whether it reads the reference of a task, and whether it needs one.
        of_answers: True if it judges answers to a question instead of translations.
        marks_errors: True if its verdicts have the error spans of each translation.
        compares_pairs: True if it has a prompt for every two candidates, in both orders.
    """

    name: str
    help: str
    options: type[JudgeOptions]
    needs: Needs = "nothing"
    reference: Reference = "unread"
    of_answers: bool = False
    marks_errors: bool = False
    compares_pairs: bool = False

    def read(self, values: Mapping[str, object]) -> JudgeOptions:
        """Read the options from plain values. Raises UserError for an unknown name or a wrong value."""
        noun = f"option of judge {self.name!r}" if self.needs == "nothing" else "judge option"
        return read_options(self.options, values, noun)


Options = TypeVar("Options", bound=JudgeOptions)
Read = TypeVar("Read", bound=BaseModel)
SPECS: dict[str, JudgeSpec] = {}  # of the judges whose modules are imported; see `registry`


def judge(*names: str, **traits: Any) -> Callable[[type[Options]], type[Options]]:
    """Register a judge by the class of its options, with those traits of its `JudgeSpec` that are not the defaults."""

    def register(options: type[Options]) -> type[Options]:
        for name in names:
            SPECS[name] = JudgeSpec(name, options=options, **traits)
        return options

    return register


def read_options(kind: type[Read], values: Mapping[str, object], noun: str = "judge option") -> Read:
    """Read options from plain values. Raises UserError that names the nearest known option, or the value to give."""
    if kind.model_config.get("extra") == "forbid":
        for name in values:
            require_known(noun, name, kind.model_fields)
    try:
        return kind.model_validate({name: _number(kind, name, value) for name, value in values.items()})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name, value = str(detail["loc"][0]), detail["input"]
        if detail["type"] == "missing":
            raise UserError(f"Judge option {name!r} is not set; give it.") from error
        remedy = _TYPES.get(detail["type"]) or _range(kind.model_fields[name])
        if detail["type"] == "literal_error":
            remedy = f"one of {', '.join(_choices(kind.model_fields[name].annotation))}"
        wrong = f"Judge option {name!r} is {value!r}"
        raise UserError(f"{wrong}; give {remedy}." if remedy else f"{wrong}: {detail['msg']}.") from error


def _number(kind: type[BaseModel], name: str, value: object) -> object:
    """Read 1e-3, which YAML 1.1 takes for text, as the number that the option is; leave all else."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value) and name in kind.model_fields:
        annotation = kind.model_fields[name].annotation
        if float in (annotation, *get_args(annotation)):
            return float(value)
    return value


def _choices(annotation: object) -> list[str]:
    """List the names of a Literal, also of an optional one."""
    return [name for kind in get_args(annotation) for name in ([kind] if isinstance(kind, str) else _choices(kind))]


def _range(option: FieldInfo) -> str:
    """Say which numbers an option takes; empty where it is bounded otherwise than from below, or from both sides."""
    names = ("ge", "gt", "le")
    bounds = {name: getattr(limit, name) for limit in option.metadata for name in names if hasattr(limit, name)}
    if "gt" in bounds:
        return f"a number above {bounds['gt']}" + (f", at most {bounds['le']}" if "le" in bounds else "")
    if "ge" not in bounds:
        return ""
    return f"a number from {bounds['ge']} to {bounds['le']}" if "le" in bounds else f"a number at least {bounds['ge']}"
