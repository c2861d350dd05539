"""Bearer tokens, from a file or the environment: the one check of what can be sent in an Authorization header."""

from __future__ import annotations

import os
from pathlib import Path

from grrm.errors import UserError


def token_from_file(path: str, title: str) -> str:
    """The token in the file at `path`, which errors call `title`. Raises UserError when it holds none."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise UserError(f"cannot read the {title} ({error.strerror}): name a file that you may read") from error
    except UnicodeDecodeError:
        text = ""
    return _checked(text, title)


def token_from_env(name: str, title: str) -> str:
    """The token in the environment variable `name`, which errors call `title`. Raises UserError when it holds none."""
    return _checked(os.environ.get(name, ""), title)


def _checked(text: str, title: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the {title} holds no token: put one line of printable ASCII without spaces there")
    return token
