"""Pages that need nothing but themselves: templates, data and scripts put inside, numbers for people."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grrm.data.atomic import atomic_path
from grrm.tracking.console import format_seconds

_FOLDER = Path(__file__).parent
# What could end a script element, or a line of a script, in text that came from anywhere.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page_environment(*folders: Path) -> Environment:
    """Templates of `folders` and of this one, whatever is put in escaped; a name that is not given raises."""
    environment = Environment(
        loader=FileSystemLoader([*folders, _FOLDER]),
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


def page_files(*names: str) -> Markup:
    """Scripts or style sheets of this package, one after another, as they go into an element of a page."""
    return Markup("\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names))


def policy_hash(content: str) -> str:
    """The source of a security policy that allows an inline script or style sheet with this content and no other."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii") + "'"


def embedded_json(value: Any) -> Markup:
    """JSON that stays text in a script element whatever its strings contain. Raises ValueError on NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_UNSAFE))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
