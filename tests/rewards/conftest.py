"""Scripted reward servers that are closed after the test."""

from __future__ import annotations

import pytest
from support.scripted_server import ScriptedServer


@pytest.fixture
def start():
    servers = []

    def build(*script):
        servers.append(ScriptedServer(*script))
        return servers[-1]

    yield build
    for server in servers:
        server.close()
