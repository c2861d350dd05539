"""The server as users start it: a process, real sockets, one sentence per mistake."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys

import pytest
import requests
from click.testing import CliRunner
from support.command_line import mistake, python
from support.reward_app import group, score_body
from support.reward_servers import SCRIPT, reward_server

from grrm_reward_server import main as main_module

BODY = score_body(group("g", "Hello", "zzz"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server with spaces")
    (folder / "settings.yaml").write_text("max_body_bytes: 5000\nscore_scale_factor: 1.0\n")
    log = folder / "server.log"
    with reward_server("--config", str(folder / "settings.yaml"), "--log_file", str(log)) as (process, url):
        yield process, url, log


def test_server_needs_no_model_and_serves_both_protocols(server):
    _, url, log = server
    assert requests.get(f"{url}/readyz", timeout=120).json() == {"status": "ready"}
    verdict = requests.post(f"{url}/v1/score", json=BODY, timeout=120).json()["verdicts"][0]
    assert verdict["candidates"][0]["score"] == 10.0
    rows = {"src": ["s"], "tgt": ["Hello"], "response": ["Hello<|im_end|>"]}
    assert requests.post(url, json=rows, timeout=120).json() == {
        "error_code": 0,
        "error_msg": "Success",
        "score": [10.0],
    }
    assert "POST /v1/score 200" in log.read_text()


@pytest.mark.parametrize("n_bytes", [5001, 9000])
def test_large_body_is_413_over_a_real_socket(server, n_bytes):
    _, url, _ = server
    answer = requests.post(url, data=b" " * n_bytes, headers={"Content-Type": "application/json"}, timeout=120)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


def test_large_chunked_body_is_413_too(server):
    _, url, _ = server
    pieces = (b" " * 1000 for _ in range(9))
    answer = requests.post(url, data=pieces, headers={"Content-Type": "application/json"}, timeout=120)
    assert answer.status_code == 413


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_as_large_as_allowed_is_read_to_its_end(server, is_chunked):
    _, url, _ = server
    body = b'{"src":[],"tgt":[],"response":[]}'.rjust(5000)
    data = (body[start : start + 1000] for start in range(0, len(body), 1000)) if is_chunked else body
    answer = requests.post(url, data=data, headers={"Content-Type": "application/json"}, timeout=120)
    assert answer.json() == {"error_code": 0, "error_msg": "Success", "score": []}


def test_port_in_use_is_one_sentence_and_exit_2(server):
    _, url, _ = server
    port = url.rpartition(":")[2]
    said = mistake(python(SCRIPT, "--port", port))
    assert said.startswith(f"error: cannot listen on 127.0.0.1 port {port} (Address already in use)")
    assert "choose another with --port" in said


def test_token_is_asked_for_and_the_server_stops_on_sigterm(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    options = ("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))
    with reward_server(*options, stderr=subprocess.PIPE) as (process, url):
        address = url.replace("0.0.0.0", "127.0.0.1")
        assert requests.get(f"{address}/healthz", timeout=120).status_code == 200
        assert requests.post(f"{address}/v1/score", json=BODY, timeout=120).status_code == 401
        headers = {"Authorization": "Bearer s3cret"}
        assert requests.post(f"{address}/v1/score", json=BODY, headers=headers, timeout=120).status_code == 200
        process.terminate()
        assert process.wait(120) == 0
        assert process.stderr.read().count("refused by its header: 401 Unauthorized\n") == 1


def test_no_module_beside_the_script_hides_one_of_the_standard_library():
    names = {path.stem for path in SCRIPT.parent.glob("*.py")}
    assert names & sys.stdlib_module_names == set()


def test_judged_text_survives_the_wire_byte_for_byte(server):
    _, url, _ = server
    odd = 'two words "quoted" \\ back 日本語 \U0001f600 \x00 </s>'
    rows = {"src": ["s"], "tgt": [odd], "response": [odd]}
    assert requests.post(url, json=rows, timeout=120).json()["score"] == [10.0]


def test_page_of_another_site_that_leads_here_reaches_nothing(server):
    port = int(server[1].rpartition(":")[2])
    for path in ("/", "/healthz", "/v1/live"):
        foreign = requests.get(server[1] + path, headers={"Host": f"attacker.example:{port}"}, timeout=120)
        assert (foreign.status_code, foreign.json()["error_code"]) == (421, 421)
    assert requests.get(f"http://localhost:{port}/healthz", timeout=120).status_code == 200
    with socket.create_connection(("127.0.0.1", port)) as old:
        old.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert old.recv(100).startswith(b"HTTP/1.0 200")


# --- in process


class FakeFront:
    """Stands in for the HTTP front: remembers the application, and is told to stop at once."""

    scheme = "http"

    def __init__(self, app, settings, listener):
        self.app, self.settings, self.socket = app, settings, listener

    def turn(self, timeout_s):
        signal.raise_signal(signal.SIGTERM)
        self.socket.close()

    def served(self):
        return []

    def pull_trigger(self):
        pass


@pytest.fixture
def started(monkeypatch):
    servers = []

    def build(*parts, is_shared):
        assert not is_shared
        servers.append(FakeFront(*parts))
        return servers[-1]

    handlers = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr("grrm_reward_server.running.Front", build)
    yield servers
    for number, handler in old.items():
        signal.signal(number, handler)
    logging.basicConfig(handlers=handlers, level=level, force=True)


def invoke(*options):
    return CliRunner().invoke(main_module.main, list(options))


def test_command_line_reaches_the_application(started, monkeypatch):
    monkeypatch.setenv("REWARD_TOKEN", "abc")
    done = invoke("--port", "0", "--judge", "bleu", "--default-reward", "-1", "--token-env", "REWARD_TOKEN")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("listening on http://127.0.0.1:")
    client = started[0].app.flask.test_client()
    assert client.post("/", json={"src": [], "tgt": [], "response": []}).status_code == 401
    started[0].app.is_stopping = False  # as while it served
    rows = {"src": ["s"], "tgt": [""], "response": ["a"]}
    answer = client.post("/", json=rows, headers={"Authorization": "Bearer abc"})
    assert answer.get_json()["score"] == [-1.0]


def test_ipv6_loopback_is_printed_as_a_url(started):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert invoke("--host", "::1", "--port", "0").output.startswith("listening on http://[::1]:")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "/nowhere/x.yaml"], "error: The argument file '/nowhere/x.yaml' cannot be read"),
        (["--log-file", "/nowhere/x.log"], "error: cannot write the log file /nowhere/x.log"),
        (["--host", "0.0.0.0", "--port", "0"], "--token-file"),
        (["--port", "70000"], "error: reward server setting 'port'"),
        (["--token-file", "/nowhere/t"], "error: cannot read the token file"),
        (["--drain-timeout", "-1"], "error: reward server setting 'drain_timeout_s'"),
        (["--judge", "oracle"], "oracle"),
        (["--extractor-type", "magic"], "magic"),
    ],
)
def test_mistakes_end_with_one_sentence_and_exit_2(started, options, message):
    done = invoke(*options)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
    assert started == []


def test_missing_server_packages_are_named(started, monkeypatch):
    for name in ("running", "front"):
        monkeypatch.delitem(sys.modules, f"grrm_reward_server.{name}")
    monkeypatch.setitem(sys.modules, "waitress.server", None)
    done = invoke("--port", "0")
    assert done.exit_code == 2
    assert "pip install 'paddle-grrm[server]'" in done.output


def test_a_wrong_option_is_one_line():
    said = "error: Invalid value for '--port': 'abc' is not a valid integer; see `reward_server.py --help`.\n"
    assert mistake(python(SCRIPT, "--port", "abc")) == said
