"""Scripted reward servers that are closed after the test."""

from __future__ import annotations

import pytest
from support.local_server import LocalServer


@pytest.fixture
def start(closing):
    return lambda *script: closing.enter_context(LocalServer(*script))
