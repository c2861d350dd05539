"""Declaration of a key of an argument file: once, with type, default, range, unit, support and one line of help.

A group of keys is a `Section`, a pydantic model whose fields are made with `key`. A stage's configuration inherits from
the sections it has, so that a function says with the section it takes which keys it may read. What a file may contain,
`--help` and the tables of docs/keys_rl.md and its like all come from these declarations.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from grrm.config.values import alternatives, convert, describe, is_null
from grrm.errors import UserError

Names = Literal["", "file", "model"]


class By(Enum):
    """The party that honours a key."""

    OURS = "this package"
    TRAINER = "PaddleNLP's Trainer"
    SWITCH = "no effect here"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Support:
    """The effect of a key. `note` is the reason of a refusal, or what happens instead of a switch.

    `off` are values beside the default that ask for nothing; `default_is_off` is False where the default asks for it.
    `on_cpu` says what happens on a CPU instead, where the key takes effect on GPUs only.
    """

    by: By
    note: str = ""
    on_cpu: str = ""
    off: tuple[Any, ...] = ()
    default_is_off: bool = True


OURS = Support(By.OURS)
TRAINER = Support(By.TRAINER)


def switch(instead: str, off: tuple[Any, ...] | None = None) -> Support:
    """A performance switch of PaddleNLP that changes no result and does nothing here; one log line says so.

    `off` are the values of which none needs to be said, by default the key's default alone.
    """
    return Support(By.SWITCH, instead, off=off or (), default_is_off=off is None)


def gpu_switch(on_cpu: str) -> Support:
    """A performance switch that takes effect on GPUs; on a CPU one log line says what happens instead."""
    return Support(By.OURS, on_cpu=on_cpu)


def refused(reason: str, *off: Any) -> Support:
    """A key that is an error with any value but its default and `off`; the reason ends with the remedy."""
    return Support(By.REFUSED, reason, off=off)


@dataclass(frozen=True, slots=True)
class Key:
    """One key as a stage knows it. `low` and `high` bound numbers, `also` are further values outside the bounds.

    `choices` are the names of a registry, read anew each time, so that what is registered later is a choice too.
    """

    name: str
    hint: Any
    default: Any
    help: str
    section: type[Section]
    support: Support = OURS
    unit: str = ""
    means: str = ""
    low: float | None = None
    high: float | None = None
    low_included: bool = True
    high_included: bool = True
    also: tuple[float, ...] = ()
    aliases: tuple[str, ...] = ()
    names: Names = ""
    required: str = ""
    choices: Collection[str] = ()

    @property
    def accepts(self) -> Any:
        """The type of a value: the declared one, or one of the choices, and None where that is declared."""
        if not self.choices:
            return self.hint
        literal: Any = Literal
        chosen = literal[tuple(self.choices)]
        return chosen | None if type(None) in alternatives(self.hint) else chosen

    @property
    def is_open(self) -> bool:
        """True where None stands for a value that must be given, or that follows from other keys."""
        return self.default is None and type(None) not in alternatives(self.hint)

    def read(self, value: Any) -> Any:
        """`value` with the declared type. Raises UserError for another type or a number out of range."""
        value = self.typed(value, self.name)
        self.check_range(value)
        return value

    def typed(self, value: Any, name: str) -> Any:
        """`value` with the declared type, in range or not. Raises UserError for another type.

        Empty text is null where that is the default, as in PaddleNLP's own files.
        """
        is_empty = self.default is None and isinstance(value, str) and not value.strip()
        return None if is_empty or (self.is_open and is_null(value)) else convert(name, value, self.accepts)

    def check_range(self, value: Any) -> None:
        """Raises UserError for a number out of range."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not self._in_range(value):
            raise UserError(f"{self.name} is {_exact(value)}; it must be {self._range_words()}.")

    def _in_range(self, value: float) -> bool:
        if value in self.also:
            return True
        if self.low is not None and not (value >= self.low if self.low_included else value > self.low):
            return False
        return self.high is None or (value <= self.high if self.high_included else value < self.high)

    def _range_words(self) -> str:
        low = "" if self.low is None else f"{'at least' if self.low_included else 'above'} {_exact(self.low)}"
        high = "" if self.high is None else f"{'at most' if self.high_included else 'below'} {_exact(self.high)}"
        words = " and ".join(part for part in (low, high) if part)
        return ", or ".join([words, *(f"{value:g}" for value in self.also)])

    def explanation(self) -> str:
        """The line of help, and the older names."""
        return "; ".join([self.help, *(f"older name {alias}" for alias in self.aliases)])

    def default_text(self) -> str:
        """The default as it is written in a file, or what it stands for."""
        return "required" if self.required else self.means or as_written(self.default)

    def values_text(self) -> str:
        """Type, range and unit in a few words."""
        low = "" if self.low is None else f"{'≥' if self.low_included else '>'} {_number(self.low)}"
        high = "" if self.high is None else f"{'≤' if self.high_included else '<'} {_number(self.high)}"
        words = describe(self.accepts).removeprefix("a ").removeprefix("one of ")
        also = ", or ".join(["", *(f"{value:g}" for value in self.also)])
        bounds = ", ".join(part for part in (low, high) if part)
        return " ".join(part for part in (words, f"{bounds}{also}", f"({self.unit})" if self.unit else "") if part)

    def is_off(self, value: Any) -> bool:
        """True for a value with which a refused key or a switch asks for nothing."""
        return value in self.support.off or (self.support.default_is_off and value == self.default)


def _exact(value: float) -> str:
    """A number without loss: a seed just out of range differs from the bound in its last digit."""
    return str(value) if isinstance(value, int) else f"{value:g}"


def _number(value: float) -> str:
    """A bound as people write it: powers of ten and of two by their exponent."""
    if abs(value) >= 10**4:
        for base, offset in ((10, 0), (2, 1)):
            exponent = round(math.log(abs(value), base))
            if base**exponent - offset == abs(value):
                return f"{'-' if value < 0 else ''}{base}^{exponent}{' - 1' if offset else ''}"
    return f"{value:g}"


def as_written(value: Any) -> str:
    """A value as YAML writes it on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value) if value != "" else '""'


def key(
    default: Any,
    help: str,
    *,
    by: Support | None = None,
    unit: str = "",
    means: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    also: tuple[float, ...] = (),
    aliases: tuple[str, ...] = (),
    names: Names = "",
    required: str = "",
    choices: Collection[str] = (),
) -> Any:
    """The declaration of one key, to be assigned to its annotation in a `Section`.

    `default` None with a type that has no None is a value that is derived from other keys, or must be given: then
    `required` says what to give. `means` says what the default stands for. `by` is None for the section's `usual`.

    `also` lists numbers outside the range that mean something, `aliases` are older names. `names` says
    what must be on the machine that trains: a file, or a model folder unless the model is on a hub. `choices` are the
    names that a text may be.
    """
    facts = {
        "support": by,
        "unit": unit,
        "means": means,
        "low": gt if ge is None else ge,
        "high": lt if le is None else le,
        "low_included": gt is None,
        "high_included": lt is None,
        "also": also,
        "aliases": aliases,
        "names": names,
        "required": required,
        "choices": choices,
    }
    extra: Any = {"facts": facts}
    if isinstance(default, (list, dict)):
        return Field(default_factory=default.copy, description=help, json_schema_extra=extra)
    return Field(default, description=help, json_schema_extra=extra)


class Section(BaseModel):
    """A group of keys. Values are read as leniently as those of a file; raises UserError for one that cannot be."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    title: ClassVar[str] = ""
    usual: ClassVar[Support] = OURS  # of the keys that it declares without another one
    # Keys that this class treats otherwise than the section that declares them.
    support: ClassVar[Mapping[str, Support]] = {}

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        return keys_of(cls)[info.field_name].read(value)


@cache
def keys_of(section: type[Section]) -> Mapping[str, Key]:
    """Every key of a section, or of all sections of a stage, by name in the order of declaration."""
    keys: dict[str, Key] = {}
    for cls in sections_of(section):
        for name in inspect.get_annotations(cls):
            field = section.model_fields.get(name)
            if field is None or name in keys:
                continue
            extra: Any = field.json_schema_extra
            default = field.get_default(call_default_factory=True)
            declared = Key(name, field.annotation, default, field.description or "", cls, **extra["facts"])
            keys[name] = replace(declared, support=section.support.get(name) or declared.support or cls.usual)
    return keys


def sections_of(stage: type[Section]) -> list[type[Section]]:
    """The sections that a stage has, its own keys first."""
    return [cls for cls in stage.__mro__ if issubclass(cls, Section) and cls is not Section]


def aliases_of(section: type[Section]) -> Mapping[str, str]:
    """Older name of a key to its name."""
    return {alias: declared.name for declared in keys_of(section).values() for alias in declared.aliases}
