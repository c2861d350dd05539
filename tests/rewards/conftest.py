"""Scripted reward servers that are closed after the test."""

from __future__ import annotations

from support.local_server import closed_after_test
from support.scripted_server import ScriptedServer

start = closed_after_test(ScriptedServer)
