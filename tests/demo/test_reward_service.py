"""The demo's reward server: started once, health-checked, never left behind."""

import sys
import textwrap

import pytest
import requests
from support.stopped_clock import PATIENCE_S, eventually

from grrm.demo.reward_service import RewardService, is_healthy
from grrm.errors import UserError

SERVER = textwrap.dedent("""
    import http.server, os
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/die":
                os._exit(1)
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
""")


def a_service(tmp_path, code, **options):
    return RewardService([sys.executable, "-c", code], tmp_path / "server.log", cwd=tmp_path, **options)


def test_server_is_started_once_and_gone_afterwards(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        url = service.url()
        assert is_healthy(url)
        assert service.url() == url
        assert (tmp_path / "server.log").read_text().count("listening") == 1
    assert not is_healthy(url)


def test_server_that_died_is_started_again(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{service.url()}/die", timeout=PATIENCE_S)
        eventually(lambda: is_healthy(service.url()))


def test_server_that_ends_is_reported_with_its_last_words(tmp_path):
    code = "import sys; sys.exit('error: port 80 is in use')"
    with (
        a_service(tmp_path, code) as service,
        pytest.raises(UserError, match=r"ended at once \(error: port 80 is in use\)"),
    ):
        service.url()


def test_server_that_never_gets_healthy_is_given_up_and_stopped(tmp_path):
    service = a_service(tmp_path, "import time; time.sleep(60)", deadline_s=0.3)
    with service, pytest.raises(UserError, match=r"not healthy after 0 s \(it said nothing\)"):
        service.url()
    assert service._child is None


def test_server_with_other_options_replaces_the_one_before(tmp_path):
    with a_service(tmp_path, SERVER) as service:
        first = service.url(["--judge", "gqm"])
        assert service.url(["--judge", "gqm"]) == first
        second = service.url(["--judge", "sqm"])
        assert is_healthy(second)
        assert not is_healthy(first)
