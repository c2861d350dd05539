"""Golden vectors: `pytest tests/golden [--golden-dir DIR]` replays stored rows through the adapters.

Rows are JSON objects, one per line, in DIR/*.jsonl: `id`, `fn`, `input`, `expected`, and optionally `quirk`,
`note`, `expected_fixed` or `expected_fixed_<key>`. Each file in `adapters/` may define two dictionaries, both
from `fn` to a callable:

* `FIXED`: our behaviour. Compared with `expected`; for a quirk row with `expected_fixed` (or
  `expected_fixed_<key>`: that key of the result alone), with that instead.
* `COMPAT`: the original's behaviour, quirks included. Always compared with `expected`.

A callable gets a copy of the row's `input`. One with a second required parameter also gets a
`RowContext`, with the folder of the vectors (`golden_dir`, for files beside them) and the whole row.
Where an error is expected, `{"__error__": "KeyError"}`, the callable raises an exception of that name.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RELATIVE = 1e-6
ABSOLUTE = 1e-10  # for values that are zero up to rounding
Row = dict[str, Any]


@dataclass(frozen=True)
class RowContext:
    """What an adapter may need beside the input: where the vectors lie, and the row's other fields."""

    golden_dir: Path
    row: Row


def load_adapter(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"golden_adapter_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = [load_adapter(path) for path in sorted((HERE / "adapters").glob("*.py"))]
FIXED, COMPAT = (ChainMap(*(getattr(module, kind, {}) for module in MODULES)) for kind in ("FIXED", "COMPAT"))


def vectors_dir(config: pytest.Config) -> Path:
    # Run from the root, conftest.py is loaded after the options were read, hence the default.
    return Path(config.getoption("--golden-dir", default=None) or HERE / "data")


def rows_by_fn(folder: Path) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                rows.setdefault(row["fn"], []).append(row)
    if not rows:
        raise pytest.UsageError(f"--golden-dir {folder}: no *.jsonl file with a row in it")
    return rows


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "rows" in metafunc.fixturenames:
        rows = rows_by_fn(vectors_dir(metafunc.config))
        metafunc.parametrize("rows", rows.values(), ids=rows)


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


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def first(differences: Any) -> str | None:
    return next((found for found in differences if found), None)


def numbers_agree(actual: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(actual)
    return math.isclose(actual, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def result_of(adapter: Callable[..., Any], context: RowContext, expected: Any) -> Any:
    """The adapter's result; an exception counts as a result only where one is expected."""
    required = [p for p in inspect.signature(adapter).parameters.values() if p.default is p.empty]
    arguments = [copy.deepcopy(context.row["input"]), context][: len(required)]
    if not (isinstance(expected, dict) and "__error__" in expected):
        return adapter(*arguments)
    try:
        return adapter(*arguments)
    except Exception as error:  # noqa: BLE001 - the exception's type is what the row records
        return {"__error__": type(error).__name__}


def expectations(row: Row) -> Iterator[tuple[Callable[..., Any], str, Any]]:
    """(adapter, key of its result or "" for all of it, expected value) of every comparison that the row allows."""
    if row["fn"] in COMPAT:
        yield COMPAT[row["fn"]], "", row["expected"]
    if row["fn"] in FIXED and not row.get("quirk"):
        yield FIXED[row["fn"]], "", row["expected"]
    elif row["fn"] in FIXED:
        for name in [name for name in row if name.startswith("expected_fixed")]:
            yield FIXED[row["fn"]], name.removeprefix("expected_fixed").lstrip("_"), row[name]


def test_rows(rows, pytestconfig):
    compared, wrong = 0, []
    for row in rows:
        context = RowContext(vectors_dir(pytestconfig), row)
        for adapter, key, expected in expectations(row):
            result = result_of(adapter, context, expected)
            compared += 1
            if found := difference(result[key] if key and isinstance(result, Mapping) else result, expected):
                wrong.append(f"{row['id']}: {found} (note: {row.get('note', '-')})")
    assert not wrong, "\n".join(wrong)
    if not compared:
        pytest.skip("no adapter, or nothing but quirks")


@pytest.mark.parametrize(
    ("actual", "expected", "is_same"),
    [
        ([1, 2.0], [1.0000001, 2], True),
        (({"a": None}, "x", True), [{"a": None}, "x", True], True),
        (float("nan"), float("nan"), True),
        (1.00001, 1.0, False),
        (1, True, False),
        (None, float("nan"), False),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"__error__": "KeyError"}, False),
    ],
)
def test_differences_are_told(actual, expected, is_same):
    assert (difference(actual, expected) is None) is is_same
