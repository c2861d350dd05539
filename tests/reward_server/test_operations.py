"""What whoever keeps a server running looks at: measurements, the log, and who may call the server what."""

from __future__ import annotations

import json
import logging
import re

import pytest
from support.reward_app import RecordingJudge, fail, group, make_client, score_body

from grrm.gqm.groups import Verdict
from grrm_reward_server.access import allowed_hosts
from grrm_reward_server.logs import configure_logging

LINE = re.compile(r'(?:# (?:HELP|TYPE) \w+ .+|\w+(?:\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? (?:\+Inf|[-+.0-9e]+))')


def samples(client):
    """Name and labels of every sample, and its value."""
    lines = client.get("/metrics").text.splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_a_request_is_measured_from_its_arrival_to_its_answer():
    client = make_client()
    client.post("/v1/score", json=score_body(group("g", "one"), group("h", "two")))
    found = samples(client)
    for name in ("grrm_queue_wait_seconds", "grrm_judge_call_seconds", "grrm_batch_groups"):
        assert found[f'{name}_count{{judge="recording"}}'] == 1
    assert found['grrm_request_seconds_count{route="/v1/score"}'] == 1
    assert found['grrm_batch_groups_bucket{judge="recording",le="1.0"}'] == 0
    assert found['grrm_batch_groups_bucket{judge="recording",le="2.0"}'] == 1
    assert found['grrm_batch_groups_bucket{judge="recording",le="+Inf"}'] == 1
    assert found["grrm_requests_running"] == found["grrm_requests_waiting"] == 0


def test_tokens_are_measured_where_a_model_was_asked():
    class Wordy(RecordingJudge):
        def verdict(self, group):
            verdict = super().verdict(group)
            return Verdict(verdict.statuses, verdict.scores, attempts=1, tokens=300)

    client = make_client(Wordy())
    client.post("/v1/score", json=score_body())
    found = samples(client)
    assert found['grrm_reply_tokens_sum{judge="recording"}'] == 300
    assert found['grrm_reply_tokens_bucket{judge="recording",le="256.0"}'] == 0
    assert found['grrm_reply_tokens_bucket{judge="recording",le="512.0"}'] == 1


def logged(monkeypatch, tmp_path, log_format):
    """A function that gives the lines logged so far."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    configure_logging(str(tmp_path / "log"), log_format)
    return lambda: (tmp_path / "log").read_text().splitlines()


def test_log_lines_name_the_request_and_have_none_of_its_texts(monkeypatch, tmp_path):
    lines = logged(monkeypatch, tmp_path, "json")
    client = make_client(RecordingJudge(fail))
    answers = [
        client.post("/v1/score", json=score_body(group("g", "a secret text"), request_id="body-id")),
        client.post("/v1/score", json=score_body(request_id="x"), headers={"X-Request-Id": "header-id"}),
        client.post("/v1/score", json=score_body(request_id="y\n{}")),
    ]
    ids = [answer.headers["X-Request-Id"] for answer in answers]
    assert ids[:2] == ["body-id", "header-id"]
    assert re.fullmatch("[0-9a-f]{16}", ids[2])
    entries = [json.loads(line) for line in lines()]
    assert [entry["request_id"] for entry in entries] == [log_id for log_id in ids for _ in range(2)]
    failed, answered = entries[:2]
    assert "out of memory" in failed["exception"]
    assert answered == answered | {"method": "POST", "route": "/v1/score", "status": 500, "level": "WARNING"}
    assert "secret" not in "\n".join(lines())


def test_text_lines_name_the_request_too(monkeypatch, tmp_path):
    lines = logged(monkeypatch, tmp_path, "text")
    make_client().post("/v1/score", json=score_body(request_id="body-id"))
    logging.getLogger("else").warning("outside")
    assert "[body-id] POST /v1/score 200" in lines()[0]
    assert "else [-] outside" in lines()[1]
    make_client().open("/healthz", method="\x1b[2J")  # which would clear the terminal
    assert "] ? other 405" in lines()[2]


@pytest.mark.parametrize("log_level", ["info", "warning", "error"])
def test_stderr_has_refusals_alone_unless_more_is_asked_for_and_the_file_every_answer(
    monkeypatch, tmp_path, capsys, log_level
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logging(str(tmp_path / "log"), log_level=log_level)
    client = make_client()
    client.post("/v1/score", json=score_body(request_id="scored"))
    client.post("/v1/score", json={})
    client.get("/metrics")
    shown = [line.split("] ")[1].split()[2] for line in capsys.readouterr().err.splitlines()]
    assert shown == {"info": ["200", "422"], "warning": ["422"], "error": []}[log_level]
    assert re.findall(r"/v1/score (\d+)", (tmp_path / "log").read_text()) == ["200", "422"]


@pytest.mark.parametrize(
    ("bound_to", "configured", "header", "is_allowed"),
    [
        ("127.0.0.1", [], None, True),
        ("127.0.0.1", [], "127.0.0.1:8731", True),
        ("127.0.0.1", [], "localhost", True),
        ("127.0.0.1", [], "[::1]:8731", True),
        ("::1", [], "LOCALHOST:1", True),
        ("127.0.0.1", [], "attacker.example:8731", False),
        ("127.0.0.1", [], "127.0.0.1.attacker.example", False),
        ("127.0.0.1", [], "localhost@attacker.example", False),
        ("127.0.0.1", [], "", False),
        ("0.0.0.0", [], "judge.example", True),
        ("0.0.0.0", ["judge.example"], "Judge.example:8731", True),
        ("0.0.0.0", ["judge.example"], "10.0.0.1", False),
        ("0.0.0.0", ["judge.example:8731", "::1"], "judge.example:80", True),
        ("0.0.0.0", ["judge.example:8731", "::1"], "[::1]:80", True),
        ("127.0.0.1", ["judge.example"], "judge.example", True),
    ],
)
def test_names_a_server_may_be_called_by(bound_to, configured, header, is_allowed):
    assert allowed_hosts(bound_to, configured)(header) is is_allowed
