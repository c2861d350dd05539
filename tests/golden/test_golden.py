"""Replays the golden vectors; the contract is described in conftest.py."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

RELATIVE = 1e-6
ABSOLUTE = 1e-10  # for values that are zero up to rounding


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Arrays and array scalars as lists and numbers; everything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def difference(actual: Any, expected: Any, where: str = "result") -> str | None:
    """The first place where two values differ, or None. NaN equals NaN, tuples equal lists, keys are strings."""
    actual = plain(actual)
    if is_number(actual) and is_number(expected):
        return None if numbers_agree(actual, expected) else f"{where}: {actual!r} instead of {expected!r}"
    if isinstance(actual, (list, tuple)) and isinstance(expected, list):
        if len(actual) != len(expected):
            return f"{where}: {len(actual)} elements instead of {len(expected)}"
        return first(difference(a, e, f"{where}[{i}]") for i, (a, e) in enumerate(zip(actual, expected, strict=True)))
    if isinstance(actual, Mapping) and isinstance(expected, dict):
        by_name = {str(key): value for key, value in actual.items()}
        if set(by_name) != set(expected):
            return f"{where}: keys {sorted(by_name)} instead of {sorted(expected)}"
        return first(difference(by_name[key], expected[key], f"{where}[{key!r}]") for key in expected)
    same = actual == expected and isinstance(actual, bool) == isinstance(expected, bool)
    return None if same else f"{where}: {actual!r} instead of {expected!r}"


def first(differences: Any) -> str | None:
    return next((found for found in differences if found), None)


def numbers_agree(actual: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(actual)
    return math.isclose(actual, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def takes_context(adapter: Callable[..., Any]) -> bool:
    return [p.default for p in inspect.signature(adapter).parameters.values()].count(inspect.Parameter.empty) > 1


def call_adapter(adapter: Callable[..., Any], context: Any, expected: Any) -> Any:
    """The adapter's result; an exception counts as a result only where one is expected."""
    arguments = [copy.deepcopy(context.row["input"])] + [context] * takes_context(adapter)
    if not (isinstance(expected, dict) and "__error__" in expected):
        return adapter(*arguments)
    try:
        return adapter(*arguments)
    except Exception as error:  # noqa: BLE001 - the exception's type is what the row records
        return {"__error__": type(error).__name__}


def fixed_expectation(row: dict[str, Any]) -> tuple[str, Any] | None:
    """(key of the result or "", value) that our own behaviour must give, None for a quirk without such a value."""
    if not row.get("quirk"):
        return "", row["expected"]
    prefix = "expected_fixed"
    found = [(name[len(prefix) :].lstrip("_"), value) for name, value in row.items() if name.startswith(prefix)]
    return found[0] if found else None


def check(adapter: Callable[..., Any], context: Any, key: str, expected: Any) -> None:
    result = call_adapter(adapter, context, expected)
    if key and isinstance(result, Mapping):
        result = result[key]
    found = difference(result, expected)
    assert found is None, f"{context.row['fn']}: {found}\nnote: {context.row.get('note', '-')}"


def test_row(golden_row, row_context, adapters):
    fixed, compat = adapters.fixed.get(golden_row["fn"]), adapters.compat.get(golden_row["fn"])
    wanted = fixed_expectation(golden_row)
    checked = 0
    if compat is not None:
        check(compat, row_context, "", golden_row["expected"])
        checked += 1
    if fixed is not None and wanted is not None:
        check(fixed, row_context, *wanted)
        checked += 1
    if not checked:
        pytest.skip("quirk, no fixed value" if golden_row.get("quirk") else "no FIXED adapter for a row without quirk")


def test_fn_has_adapter(uncovered_fn):
    if uncovered_fn is not None:
        pytest.skip(f"no adapter for fn {uncovered_fn}")


def test_every_adapter_file_imports(adapters):
    assert not adapters.broken, "\n".join(adapters.broken.values())
