"""Pages that need nothing but themselves: templates beside this module, numbers for people, files written whole."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grrm.data.atomic import atomic_path
from grrm.tracking.console import format_seconds


def page_environment(*folders: Path) -> Environment:
    """Templates of `folders` and of this one, whatever is put in escaped; a name that is not given raises."""
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": format_seconds, "number": show_number}
    return environment


def show_number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
