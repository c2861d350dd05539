"""YAML as people mean it: a key once, and as numbers only what JSON and the command line take for numbers too."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

# What people and JSON write as numbers; YAML 1.1 has more, see below.
_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0|[1-9]\d*)$",
    "tag:yaml.org,2002:float": r"[-+]?((\d+\.\d*|\.\d+)([eE][-+]\d+)?|\.(inf|nan))$",
}


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which plain YAML silently keeps the last.

    A key beside `<<` may override one that is merged. Text is what is text on the command line: dates, and the
    numbers 010 (8 in YAML 1.1), 1:30 (90) and 2026_11_29 (20261129).
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # the stubs have it in instances
        first: [(tag, form) for tag, form in resolvers if tag not in (*_NUMBERS, "tag:yaml.org,2002:timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flat: set[yaml.Node] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if node in self._flat:  # its keys are no longer its own alone
            return
        self._flat.add(node)
        seen = set()
        for key_node, _ in node.value:
            is_merge = key_node.tag == "tag:yaml.org,2002:merge"
            key = key_node.value if is_merge else self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        super().flatten_mapping(node)


class _AsWritten(float):
    """A number that is its own text where a key takes text: the name 1.10 is not 1.1. Its copies are plain numbers."""

    text = ""

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)


def _number(loader: _StrictLoader, node: yaml.ScalarNode) -> float:
    number = _AsWritten(loader.construct_yaml_float(node))
    number.text = node.value
    return number


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _number)
for tag, form in _NUMBERS.items():
    _StrictLoader.add_implicit_resolver(tag, re.compile(form), list("-+.0123456789"))


def load_yaml(text: str) -> Any:
    """The value that `text` is. Raises YAMLError, ValueError, TypeError or RecursionError for what is not such YAML."""
    return yaml.load(text, Loader=_StrictLoader)
