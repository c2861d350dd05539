"""Known keys of an argument file, and the turning of YAML or command-line values into the declared types."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grrm.config.fields import RL_ALIASES, SFT_ALIASES, RLFields, SFTFields
from grrm.config.inherited import InheritedFields
from grrm.errors import UserError


@dataclass(frozen=True, slots=True)
class Schema:
    """What one kind of argument file may contain. `fresh_defaults()` gives a new value for every key."""

    kind: str
    types: Mapping[str, Any]
    default_makers: Mapping[str, Callable[[], Any]]
    aliases: Mapping[str, str]

    def fresh_defaults(self) -> dict[str, Any]:
        """Every key with its default; mutable defaults are not shared."""
        return {key: make() for key, make in self.default_makers.items()}


def _schema(kind: str, own: type, aliases: Mapping[str, str]) -> Schema:
    hints: dict[str, Any] = {}
    makers: dict[str, Callable[[], Any]] = {}
    for source in (InheritedFields, own):
        known = get_type_hints(source)
        for one in fields(source):
            hints[one.name] = known[one.name]
            makers[one.name] = one.default_factory if one.default_factory is not MISSING else _constant(one.default)
    return Schema(kind, types.MappingProxyType(hints), types.MappingProxyType(makers), aliases)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


RL_SCHEMA = _schema("RL", RLFields, RL_ALIASES)
SFT_SCHEMA = _schema("SFT", SFTFields, SFT_ALIASES)


def typed_values(schema: Schema, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The given keys under their current names and with their declared types.

    Raises UserError on an unknown key (naming the nearest known one), on a key that is given under its old and its
    new name with different values, and on a value of the wrong type.
    """
    typed: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in raw.items():
        key = schema.aliases.get(name, name)
        if key not in schema.types:
            known = [*schema.types, *schema.aliases]
            nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)[0]
            raise UserError(f"Unknown key {name!r}; did you mean {nearest!r}?")
        converted = convert(name, value, schema.types[key])
        if key in typed and typed[key] != converted:
            raise UserError(
                f"{written[key]} and {name} are two names of one setting, given as {typed[key]!r} and {converted!r}; "
                "keep one of them."
            )
        typed[key], written[key] = converted, str(name)
    return typed


def convert(key: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint`; text is read as a number, truth value, list or mapping where that is declared.

    Raises UserError naming key, value and the type that is wanted.
    """
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if _is_null(value) and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert_one(value, option)
        except (ValueError, TypeError):
            continue
    wanted = " or ".join(_describe(option) for option in options if option is not type(None))
    raise UserError(f"{key} is {value!r}; give {wanted}{_nearest(value, options)}.")


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ("none", "null", "~"))


def _convert_one(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        if value is False and "no" in get_args(hint):  # YAML reads a bare `no` as false
            return "no"
        raise ValueError
    if origin is list:
        (member,) = get_args(hint)
        return [_convert_one(item, member) for item in _items(value)]
    if origin is dict:
        mapping = json.loads(value) if isinstance(value, str) else value
        if not isinstance(mapping, dict) or not all(isinstance(text, str) for text in [*mapping, *mapping.values()]):
            raise ValueError
        return mapping
    return _SCALARS[hint](value)


def _items(value: Any) -> Iterable[Any]:
    """A list as it is; text split at commas and blanks (JSON when it starts with a bracket)."""
    if isinstance(value, str):
        return list(json.loads(value)) if value.lstrip().startswith("[") else value.replace(",", " ").split()
    if not isinstance(value, list):
        raise ValueError
    return value


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in (0, 1) and isinstance(value, int):
        return bool(value)
    text = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in text:
        return text[value.strip().lower()]
    raise ValueError


def _as_int(value: Any) -> int:
    number = _as_float(value)
    if not number.is_integer():
        raise ValueError
    return int(value) if isinstance(value, (int, str)) and str(value).strip().lstrip("+-").isdigit() else int(number)


def _as_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)  # also reads 5e-7, which YAML 1.1 takes for text
    if not math.isfinite(number):
        raise ValueError
    return number


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    return str(value)


_SCALARS: dict[Any, Callable[[Any], Any]] = {bool: _as_bool, int: _as_int, float: _as_float, str: _as_text}


def _nearest(value: Any, options: Iterable[Any]) -> str:
    """The choice that `value` looks like a misspelling of, in brackets; empty where there is none."""
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    near = difflib.get_close_matches(str(value), choices, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _describe(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(get_args(hint))
    if origin is list:
        return f"a list ({_describe(get_args(hint)[0])})"
    if origin is dict:
        return "a mapping of names to names"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[hint]
