"""Every client of a server lives through the same outage: nothing listens for 40 s, and 60 s is the deadline."""

from __future__ import annotations

import socket
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from support.completions_server import CompletionsServer
from support.local_server import LocalServer, refusing_url
from support.reward_protocol import check_right, make_groups, ok
from support.rollout_server import RolloutServer
from support.stopped_clock import stop_client_clock

from grrm.engine.api import SamplingParams
from grrm.engine.openai_text import OpenAITextGenerator
from grrm.engine.openai_wire import completions_client
from grrm.engine.rollout_wire import ROLLOUT_APIS
from grrm.engine.server_engine import ServerEngine
from grrm.errors import UserError
from grrm.http_client.client import Call
from grrm.http_client.exchange import Failure
from grrm.rewards.client import RewardClient, RewardServerError

OUTAGE_S, DEADLINE_S = 40.0, 60.0


class Outage:
    """An address where `server` begins to listen once the clock has gone on by OUTAGE_S; never where it is None."""

    def __init__(self, monkeypatch, server) -> None:
        self._taken, self._server, self._http = socket.socket(), server, None
        self._taken.bind(("127.0.0.1", 0))
        self.address = self._taken.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self.clock = stop_client_clock(monkeypatch)
        self._start_s = self.clock.now
        monkeypatch.setattr("grrm.http_client.client.sleep_unless", lambda stop, seconds: self.sleep(seconds))

    @property
    def seconds(self) -> float:
        return self.clock.now - self._start_s

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        if self.seconds >= OUTAGE_S and self._http is None and self._server is not None:
            self._taken.close()
            self._http = ThreadingHTTPServer(self.address, self._server.http.RequestHandlerClass)
            self._http.daemon_threads = True
            threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._taken.close()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        if self._server is not None:
            self._server.close()


@pytest.fixture
def outage(monkeypatch):
    begun = []

    def begin(server):
        begun.append(Outage(monkeypatch, server))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


class Counting:
    def load(self, folder: Path) -> None: ...

    def draw(self, prompt, n, temperature, seed):
        return [prompt[0] + 1 + place for place in range(n)], [-0.5] * n


def judge(url: str) -> None:
    groups = make_groups(2)
    check_right(groups, RewardClient([url], deadline_s=DEADLINE_S).score(groups))


def write(url: str) -> None:
    (reply,) = OpenAITextGenerator([url], deadline_s=DEADLINE_S).generate_text(["a"], temperature=0.0, max_new_tokens=8)
    assert reply.text == "<a>"


def roll_out(url: str) -> None:
    engine = ServerEngine(
        completions_client([url], deadline_s=DEADLINE_S),
        ROLLOUT_APIS["vllm"],
        vocab_size=50,
        max_positions=64,
        publish=lambda version: Path(),
        together=lambda work: work(),
    )
    (completion,) = engine.generate([[3]], SamplingParams(max_new_tokens=2))
    assert completion.token_ids == [4, 5]


@pytest.mark.parametrize(
    ("ask", "serve"),
    [
        (judge, lambda folder: LocalServer(ok)),
        (write, lambda folder: CompletionsServer(lambda body, number: f"<{body['prompt']}>")),
        (roll_out, lambda folder: RolloutServer("vllm", Counting(), folder, 49)),
    ],
    ids=["rewards", "texts", "rollouts"],
)
def test_an_outage_shorter_than_the_deadline_is_survived(ask, serve, outage, tmp_path):
    away = outage(serve(tmp_path))
    ask(away.url)
    assert OUTAGE_S <= away.seconds <= DEADLINE_S


@pytest.mark.parametrize("ask", [judge, write, roll_out])
def test_an_outage_longer_than_the_deadline_ends_there_with_its_cause(ask, outage):
    away = outage(None)
    with pytest.raises(Exception, match=r"connection was refused \(the deadline of 60 s leaves no time") as caught:
        ask(away.url)
    assert DEADLINE_S - 10 < away.seconds <= DEADLINE_S
    assert isinstance(caught.value, RewardServerError) is (ask is judge)


@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_server_that_answers_anything_is_there(status):
    with CompletionsServer(lambda body, number: "") as server, refusing_url() as away:
        server.model_status = status
        start([away, server.url], 5.0)


def test_a_server_that_takes_connections_and_is_slow_to_answer_is_there():
    with socket.create_server(("127.0.0.1", 0)) as silent, refusing_url() as away:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = completions_client([away, url], connect_timeout_s=0.2)
        client.require_any(0.2)


def test_servers_that_are_not_there_are_named_with_what_happened():
    with refusing_url() as url, pytest.raises(UserError, match=rf"answers \({url}: .*refused.*\): start it or correct"):
        start([url], 0.6)


def test_requests_that_do_not_notice_the_deadline_are_waited_for_together(closing):
    server, answered = closing.enter_context(CompletionsServer(lambda body, number: "")), threading.Event()
    calls = [Call("q", "/v1/completions", b"{}", lambda *_: answered.wait(60)) for _ in range(5)]
    began = time.monotonic()
    answers = completions_client([server.url]).try_all(calls, began + 0.2, lambda error: True)
    assert time.monotonic() - began < 3.0
    answered.set()
    assert {error.failure for error in answers} == {Failure.LATE}


def start(urls: list[str], required_within_s: float) -> None:
    generator = OpenAITextGenerator(urls, "m", required_within_s=required_within_s)
    generator.generate_text(["a"], temperature=0.0, max_new_tokens=8)
