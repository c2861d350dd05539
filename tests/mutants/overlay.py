"""A copy of the package that mutants are written into; this process and those that it starts import from it."""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "llm/alignment/grrm"
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # a mutant of the same second and size is another one


class Overlay:
    """The copy, made when this is created, and first on the path from then on."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "grrm"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        for path in self.package.rglob("*.py"):
            py_compile.compile(str(path), invalidation_mode=UNCHECKED)
        sys.path.insert(0, str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT / "tests")])
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True

    @contextmanager
    def mutated(self, module: str, source: str) -> Iterator[None]:
        """Have another source for a module meanwhile."""
        path = self.package / module
        original = path.read_text(encoding="utf-8")
        try:
            self._write(path, source)
            yield
        finally:
            self._write(path, original)

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        py_compile.compile(str(path), invalidation_mode=UNCHECKED)
