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

import importlib.util
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class RowContext:
    """What an adapter may need beside the input: where the vectors lie, and the row's other fields."""

    golden_dir: Path
    row: dict[str, Any]


@dataclass
class Adapters:
    """All adapters by `fn`, and the files that could not be imported with their tracebacks."""

    fixed: dict[str, Callable[..., Any]] = field(default_factory=dict)
    compat: dict[str, Callable[..., Any]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-dir", default=None, help="folder of *.jsonl golden vectors (default: the stored ones)")


def golden_dir(config: pytest.Config) -> Path:
    # Run from the root, this file is loaded after the options were read, hence the default.
    chosen = config.getoption("--golden-dir", default=None)
    return Path(chosen) if chosen else HERE / "data"


def load_rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of all *.jsonl files in `folder`, in file-name order. UsageError if there are none."""
    if not folder.is_dir():
        raise pytest.UsageError(f"--golden-dir {folder}: there is no such folder")
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            if line.strip():
                rows.append(read_row(path, number, line))
    if not rows:
        raise pytest.UsageError(f"--golden-dir {folder}: no *.jsonl file with a row in it")
    return rows


def read_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise pytest.UsageError(f"{path}, line {number}: not JSON ({error})") from error
    missing = {"id", "fn", "input", "expected"} - set(row)
    if missing:
        raise pytest.UsageError(f"{path}, line {number}: the row lacks {', '.join(sorted(missing))}")
    return row


def load_adapters() -> Adapters:
    """Import every adapters/*.py; one that fails is reported as a failing test, the others still run."""
    adapters = Adapters()
    for path in sorted((HERE / "adapters").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"golden_adapter_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception:  # noqa: BLE001 - whatever it is, it becomes the failure of test_adapter_imports
            adapters.broken[path.name] = traceback.format_exc()
            continue
        for known, new in ((adapters.fixed, "FIXED"), (adapters.compat, "COMPAT")):
            for fn, call in getattr(module, new, {}).items():
                if fn in known:
                    raise pytest.UsageError(
                        f"adapters/{path.name}: {new}[{fn!r}] is already defined by another adapter"
                    )
                known[fn] = call
    return adapters


def pytest_configure(config: pytest.Config) -> None:
    rows, adapters = load_rows(golden_dir(config)), load_adapters()
    covered = set(adapters.fixed) | set(adapters.compat)
    config.stash[ROWS] = [row for row in rows if row["fn"] in covered]
    config.stash[UNCOVERED] = sorted({row["fn"] for row in rows} - covered)
    config.stash[ADAPTERS] = adapters


ROWS = pytest.StashKey[list[dict[str, Any]]]()
UNCOVERED = pytest.StashKey[list[str]]()
ADAPTERS = pytest.StashKey[Adapters]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stash = metafunc.config.stash
    if "golden_row" in metafunc.fixturenames:
        metafunc.parametrize("golden_row", stash[ROWS], ids=[str(row["id"]) for row in stash[ROWS]])
    elif "uncovered_fn" in metafunc.fixturenames:
        metafunc.parametrize("uncovered_fn", stash[UNCOVERED] or [None])


@pytest.fixture(scope="session")
def adapters(pytestconfig: pytest.Config) -> Adapters:
    return pytestconfig.stash[ADAPTERS]


@pytest.fixture(scope="session")
def vectors_dir(pytestconfig: pytest.Config) -> Path:
    return golden_dir(pytestconfig)


@pytest.fixture
def row_context(golden_row: dict[str, Any], vectors_dir: Path) -> RowContext:
    return RowContext(vectors_dir, golden_row)
