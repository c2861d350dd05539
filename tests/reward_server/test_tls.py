"""HTTPS without a proxy: both protocols, large bodies, drains, and connections that speak no TLS."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path

import pytest
import requests
from support.command_line import mistake, python
from support.reward_app import group, score_body
from support.reward_protocol import make_groups
from support.reward_servers import SCRIPT, reward_server

from grrm.rewards.client import RewardClient

FOLDER = Path(__file__).parents[1] / "support" / "tls"
CERTIFICATE, KEY = str(FOLDER / "certificate.pem"), str(FOLDER / "key.pem")


@pytest.fixture(scope="module")
def server():
    with reward_server("--certfile", CERTIFICATE, "--keyfile", KEY) as (process, url):
        yield process, url


def test_answers_come_over_https_and_the_client_checks_the_certificate(server, monkeypatch):
    _, url = server
    assert url.startswith("https://127.0.0.1:")
    assert requests.get(f"{url}/readyz", verify=CERTIFICATE, timeout=120).json() == {"status": "ready"}
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", CERTIFICATE)
    with RewardClient([url]) as asking:
        assert len(asking.score(make_groups(200))) == 200
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with RewardClient([url], attempts=1, deadline_s=5) as asking, pytest.raises(Exception, match="CERTIFICATE_VERIFY"):
        asking.score(make_groups(1))


def test_large_bodies_and_answers_arrive_whole(server):
    _, url = server
    groups = [group(f"g{number}", *"xy", source="x" * 30_000) for number in range(200)]
    with requests.Session() as session:
        for number in range(2):
            answer = session.post(
                f"{url}/v1/score",
                json=score_body(*groups, request_id=f"large{number}"),
                verify=CERTIFICATE,
                timeout=120,
            )
            assert len(answer.json()["verdicts"]) == 200
        page = session.get(f"{url}/", verify=CERTIFICATE, timeout=120)
        assert page.text.endswith("</html>\n")


def test_connections_that_speak_no_tls_hurt_nobody(server):
    process, url = server
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    plain = [socket.create_connection(address) for _ in range(20)]
    for number, connection in enumerate(plain):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" if number % 2 else b"\x16\x03\x01")
    assert requests.get(f"{url}/healthz", verify=CERTIFICATE, timeout=120).status_code == 200
    for connection in plain:
        connection.close()
    assert process.poll() is None


def test_only_recent_tls_is_spoken(server):
    _, url = server
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw)


@pytest.mark.slow
def test_server_drains_over_https():
    with reward_server("--certfile", CERTIFICATE, "--keyfile", KEY) as (process, url):
        assert requests.get(f"{url}/readyz", verify=CERTIFICATE, timeout=120).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--certfile", "missing.pem"], "cannot be read from missing.pem: No such file"),
        (["--certfile", CERTIFICATE], "not a matching PEM pair"),
        (["--keyfile", KEY], "without its certificate"),
    ],
)
def test_files_that_cannot_be_used_are_one_sentence(options, said):
    assert said in mistake(python(SCRIPT, "--port", "0", *options))
