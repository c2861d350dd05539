"""Keeps `import paddlenlp` from importing what nothing here uses, and `import paddle` from giving advice.

PaddleNLP's package imports its task pipelines, and these import scikit-learn, SciPy's statistics, pandas, Hugging Face
datasets and FastAPI, half of every process's start. `defer()` puts modules in their place that are imported when
something of them is used.

Paddle prints warnings about OMP_NUM_THREADS above 1 and about flags with other values than its own: `quieten()` keeps
back those, as `grrm.startup` has set both on purpose.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

DEFERRED = (
    "paddlenlp.dataaug",
    "paddlenlp.datasets",
    "paddlenlp.metrics",
    "paddlenlp.server",
    "paddlenlp.taskflow",
    "paddlenlp.trl",
    "datasets",
)
# What the first of them would have imported on its way, and the rest of the package relies on having been imported.
_ON_THE_WAY = {"paddlenlp.dataaug": ("paddlenlp.prompt",)}


def defer() -> None:
    """Defer what has not been imported yet; a second call changes nothing."""
    if not any(isinstance(finder, _Deferring) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Deferring())


def quieten() -> None:
    """Keep back the advice of modules that have not been imported yet; a second call changes nothing."""
    if not any(isinstance(finder, _Quiet) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Quiet())


class _Quiet(MetaPathFinder, Loader):
    """Imports the two modules of Paddle that give advice, and takes it out of them."""

    def __init__(self) -> None:
        self.loaders: dict[str, Any] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in ("paddle.base", "paddle.distributed.parallel"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self.loaders[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loaders[spec.name].create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        loader = self.loaders[module.__name__]
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        module.__dict__["print"] = _without_advice
        loader.exec_module(module)
        del module.__dict__["print"]
        if hasattr(module, "_print_modified_flags"):
            module.__dict__["_print_modified_flags"] = lambda flags: None


def _without_advice(*values: object, **options: Any) -> None:
    if "OMP_NUM_THREADS" not in str(values[:1]):
        print(*values, **options)


class _Deferring(MetaPathFinder, Loader):
    """Finds deferred modules while PaddleNLP is being imported, and only then."""

    def __init__(self) -> None:
        self.used: set[str] = set()  # modules that were used after all

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package = sys.modules.get("paddlenlp")
        importing = package is not None and getattr(package.__spec__, "_initializing", False)
        if (
            importing
            and name not in self.used
            and any(f"{name}.".startswith(f"{package_name}.") for package_name in DEFERRED)
        ):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        for name in _ON_THE_WAY.get(module.__name__, ()):
            importlib.import_module(name)


class _Deferred(ModuleType):
    """Stands for a module: whatever is taken from it is a placeholder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        placeholder = _Placeholder(name, (), {"_module": self.__name__})
        setattr(self, name, placeholder)
        return placeholder


class _Placeholder(type):
    """Stands for a class, function or constant: to use it is to import its module; before, nothing is its instance."""

    _module: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return getattr(real_module(cls._module), cls.__name__)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(real_module(cls._module), cls.__name__), name)

    def __instancecheck__(cls, instance: object) -> bool:
        module = sys.modules.get(cls._module)
        return not isinstance(module, _Deferred) and isinstance(instance, getattr(module, cls.__name__))


def real_module(name: str) -> ModuleType:
    """The module itself, imported where it had been deferred: for what a placeholder cannot stand for, a base class."""
    if isinstance(sys.modules.get(name), _Deferred):
        del sys.modules[name]
    for finder in sys.meta_path:
        if isinstance(finder, _Deferring):
            finder.used.add(name)
    return importlib.import_module(name)
