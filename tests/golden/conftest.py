"""The option that replays other golden vectors than the stored ones."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-dir", help="folder of *.jsonl golden vectors (default: the stored ones)")
