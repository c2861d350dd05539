"""The demo's reward server: started once, health-checked, never left behind."""

from __future__ import annotations

import io
import os
import sys
import textwrap

import pytest
import requests
from rich.console import Console
from support.stopped_clock import PATIENCE_S, eventually, stop_clock

from grrm.demo.execution import StageLine, StepSeen, last_step
from grrm.demo.processes import RewardService, descendants, is_ready
from grrm.errors import UserError
from grrm.tracking.metrics_log import MetricsLog

SERVER = textwrap.dedent("""
    import http.server, os
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/die":
                os._exit(1)
            self.send_response(200 if self.path == "/readyz" else 404)
            self.end_headers()
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
""")


def a_service(tmp_path, code):
    return RewardService([sys.executable, "-c", code], tmp_path / "server.log", cwd=tmp_path, env=os.environ)


def test_server_is_started_once_and_gone_afterwards(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        url = service.url()
        assert is_ready(url)
        assert service.url() == url
        assert (tmp_path / "server.log").read_text().count("listening") == 1
    assert not is_ready(url)


def test_server_that_died_is_started_again(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{service.url()}/die", timeout=PATIENCE_S)
        eventually(lambda: is_ready(service.url()))


def test_server_that_ends_is_reported_with_its_last_words(tmp_path):
    code = "import sys; sys.exit('error: port 80 is in use')"
    with (
        a_service(tmp_path, code) as service,
        pytest.raises(UserError, match=r"ended at once \(error: port 80 is in use\)"),
    ):
        service.url()


def test_server_that_never_gets_ready_is_given_up_and_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.demo.processes.READY_S", 0.3)
    before, service = descendants(os.getpid()), a_service(tmp_path, "import time; time.sleep(60)")
    with service, pytest.raises(UserError, match=r"not ready after 0 s \(it said nothing\)"):
        service.url()
    eventually(lambda: descendants(os.getpid()) <= before)


def test_server_with_other_options_replaces_the_one_before(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        first = service.url(["--judge", "gqm"])
        assert service.url(["--judge", "gqm"]) == first
        second = service.url(["--judge", "sqm"])
        assert is_ready(second)
        assert not is_ready(first)


# --- progress of a running stage


def test_metrics_win_over_output_and_missing_numbers_are_left_out(tmp_path):
    log = MetricsLog(tmp_path)
    assert last_step(log.path, 10, ["loss"], "") is None
    log.log(1, {"loss": 2.0, "reward_mean": 0.5})
    log.log(2, {"loss": 1.5})
    with log.path.open("a") as file:
        file.write('{"step": 3, "lo')
    assert last_step(log.path, 10, ["loss", "reward_mean", "kl"], "7/9") == StepSeen(
        2, 10, {"loss": 1.5, "reward_mean": 0.5}
    )


def test_long_metrics_are_read_from_the_end(tmp_path):
    log = MetricsLog(tmp_path)
    for step in range(2000):
        log.log(step, {"loss": float(step)})
    assert last_step(log.path, 2000, ["loss"], "") == StepSeen(1999, 2000, {"loss": 1999.0})


def test_fraction_in_the_output_is_a_step_but_a_date_or_path_is_not():
    assert last_step(None, None, (), "on 3/4/2024\npass 2/5 of x") == StepSeen(2, 5)
    assert last_step(None, None, (), "see /a/1/2/b") is None


def test_off_a_terminal_lines_come_at_most_every_ten_seconds_and_tell_the_time_left(monkeypatch):
    clock, console = stop_clock(monkeypatch, "grrm.demo.execution"), Console(file=io.StringIO(), force_terminal=False)
    with StageLine(console, "1/2", "SFT") as line:
        for step in range(41):
            line.show(StepSeen(step, 100, {"loss": 0.5}))
            clock.sleep(1)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "[1/2] SFT ..."
    assert lines[1] == "[1/2] SFT  step 10/100  loss 0.5  1 min 30 s left"
    assert len(lines) == 5


def test_time_left_of_a_resumed_stage_ignores_its_start_up(monkeypatch):
    clock, console = stop_clock(monkeypatch, "grrm.demo.execution"), Console(file=io.StringIO(), force_terminal=False)
    start = clock.now
    with StageLine(console, "1/1", "GRPO") as line:
        for seconds, step in ((0, 20), (40, 20), (100, 21), (102, 22), (161, 51)):
            clock.now = start + seconds
            line.show(StepSeen(step, 100))
    assert console.file.getvalue().splitlines()[-1] == "[1/1] GRPO  step 51/100  1 min 40 s left"


def test_stage_without_progress_still_gives_a_sign_of_life_each_minute(monkeypatch):
    clock, console = stop_clock(monkeypatch, "grrm.demo.execution"), Console(file=io.StringIO(), force_terminal=False)
    with StageLine(console, "1/1", "corpus") as line:
        for _ in range(130):
            line.show(None)
            clock.sleep(1)
    assert console.file.getvalue().splitlines() == [
        *("[1/1] corpus ...", "[1/1] corpus  1 min 00 s", "[1/1] corpus  2 min 00 s")
    ]


def test_time_left_of_all_stages_falls_with_the_plan_and_then_follows_the_steps(monkeypatch):
    clock, console = stop_clock(monkeypatch, "grrm.demo.execution"), Console(file=io.StringIO(), force_terminal=False)
    with StageLine(console, "2/3", "SFT", planned_s=300.0, later_s=600.0) as line:
        for seconds in range(361):
            line.show(StepSeen(seconds // 120, 8) if seconds >= 120 else None)
            clock.sleep(1)
    assert console.file.getvalue().splitlines() == [
        "[2/3, about 15 min 00 s left] SFT ...",
        "[2/3, about 14 min 00 s left] SFT  1 min 00 s",
        "[2/3, about 13 min 00 s left] SFT  step 1/8  2 min 00 s",
        "[2/3, about 12 min 00 s left] SFT  step 1/8  3 min 00 s",
        "[2/3, about 22 min 00 s left] SFT  step 2/8  12 min 00 s left",
        "[2/3, about 21 min 00 s left] SFT  step 2/8  11 min 00 s left",
        "[2/3, about 20 min 00 s left] SFT  step 3/8  10 min 00 s left",
    ]


def test_on_a_terminal_the_line_is_live_and_text_is_not_markup():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with StageLine(console, "1/2", "SFT") as line:
        line.show(StepSeen(3, 10, {"loss": 0.25}))
    assert "[1/2] SFT  step 3/10  loss 0.25" in console.file.getvalue()
