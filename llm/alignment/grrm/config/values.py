"""Turning what a YAML file or the command line says into the declared type of a key, leniently where that is safe."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from grrm.errors import UserError, nearest_name
from grrm.strict_yaml import load_yaml

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def convert(key: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint`; text is read as a number, truth value, list or mapping where that is declared.

    Raises UserError naming key, value and the type that is wanted.
    """
    options = alternatives(hint)
    if is_null(value) and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert_option(value, option)
        except (ValueError, TypeError, OverflowError):
            continue
    raise UserError(f"{key} is {value!r}; give {describe(hint)}{_nearest(value, options)}.")


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; anything else alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def is_null(value: Any) -> bool:
    """True for YAML's null and the words for it."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("none", "null", "~"))


def is_hub_name(name: str) -> bool:
    """True for a model hub's `Owner/Model`: one slash, and nothing on this disk that the first part could be."""
    return bool(_HUB_NAME.fullmatch(name)) and not Path(name.split("/")[0]).exists()


def _convert_option(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        if value is False and "no" in get_args(hint):  # YAML reads a bare `no` as false
            return "no"
        raise ValueError
    if origin is list:
        (member,) = get_args(hint)
        return [_convert_option(item, member) for item in _items(value)]
    if origin is dict:
        mapping = _read_text(value) if isinstance(value, str) else value
        member = get_args(hint)[1]
        if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping):
            raise ValueError
        if member is str and not all(isinstance(name, str) for name in mapping.values()):
            raise ValueError
        return {name: _as_float(number) for name, number in mapping.items()} if member is float else mapping
    return _SCALARS[hint](value)


def _items(value: Any) -> Iterable[Any]:
    """A list as it is; text split at commas and blanks (YAML when it starts with a bracket)."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return value.replace(",", " ").split()
    value = _read_text(value) if isinstance(value, str) else value
    if not isinstance(value, list):
        raise ValueError
    return value


def _read_text(text: str) -> Any:
    """Read JSON, or else YAML, which takes 1e-3 and escaped surrogates otherwise. Raises ValueError."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    try:
        return load_yaml(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError from error


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
    near = nearest_name(value, choices)
    return f" (did you mean {near!r}?)" if near else ""


def describe(hint: Any) -> str:
    """The type in words: "a whole number", "one of a, b"."""
    return " or ".join(_describe_option(option) for option in alternatives(hint) if option is not type(None))


def _describe_option(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(choice or "nothing" for choice in get_args(hint))
    if origin is list:
        return f"a list ({_describe_option(get_args(hint)[0])})"
    if origin is dict:
        return {str: "a mapping of names to names", float: "a mapping of names to numbers"}.get(
            get_args(hint)[1], "mappings"
        )
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[hint]
