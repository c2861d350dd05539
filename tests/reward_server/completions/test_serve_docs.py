"""docs/serve.md lists the options, routes and refusals that there are."""

from __future__ import annotations

import re
from pathlib import Path

from grrm.cli.commands.serve import serve
from grrm_reward_server.settings import CompletionSettings

TEXT = (Path(__file__).parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")


def test_options_are_those_of_the_command():
    options = {name for parameter in serve.params for name in parameter.opts if name.startswith("--")}
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `--")]
    assert {name for row in rows for name in re.findall(r"`(--[\w-]+)`", row)} == options


def test_limits_are_those_of_the_settings():
    settings = CompletionSettings()
    assert f"`--host`, `--port` | {settings.host}, {settings.port} |" in TEXT
    assert f"`--max-in-flight` | {settings.max_in_flight} |" in TEXT
    assert f"`--request-timeout` | {settings.request_timeout_s:g} |" in TEXT
    assert f"a body {settings.body_timeout_s:g} s and {settings.max_body_bytes // 2**20} MiB" in TEXT
