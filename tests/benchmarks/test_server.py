"""The reward server's benchmark: real processes and sockets, and no answer goes unchecked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

LOAD = Path(__file__).parents[2] / "benchmarks/server_load.py"
GROUPS, SAMPLES = 2, 3


@pytest.fixture
def bodies(import_benchmark):
    requests = import_benchmark("server_requests")
    groups = requests.make_groups(GROUPS, SAMPLES)
    return {"/": requests.rows_body(groups), "/v1/score": requests.score_body(groups)}


@pytest.mark.slow
def test_every_server_answers_both_protocols_and_is_told_beside_the_bare_application(server, tmp_path, capsys):
    size = ["--groups", str(GROUPS), "--samples", str(SAMPLES), "--connections", "1,3"]
    out = tmp_path / "result.json"
    server.main(["--rounds", "2", "--seconds", "0.1", *size, "--out", str(out)])
    result = json.loads(out.read_text())
    cheapest = result["cheapest_judge"]
    assert result["judges_ms"][cheapest] == min(result["judges_ms"].values())
    assert result["cheapest_judge_share"] > 0
    names = {"ours", f"ours-{cheapest}", "flask-waitress", *(["flask-gunicorn"] if server._gunicorn() else [])}
    wanted = {(name, path, number) for name in names for path in ("/", "/v1/score") for number in (1, 3)}
    wanted |= {("ours-repeated", "/v1/score", number) for number in (1, 3)}
    rows = {(row["server"], row["path"], row["connections"]): row for row in result["rows"]}
    assert rows.keys() == wanted
    for row in rows.values():
        assert row["requests"] >= 2 * row["connections"]
        assert row["requests_per_s"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert rows["flask-waitress", "/", 1]["relative_to_flask"] == 1
    assert len(capsys.readouterr().out.splitlines()) >= len(rows) + 5
    assert [row["connections"] for row in result["readiness"]] == [1, 3]
    assert all(row["probes"] > 0 and row["probe_p99_ms"] > 0 for row in result["readiness"])


class Answering(BaseHTTPRequestHandler):
    """Answers what its server says, and remembers what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.sent.append(json.loads(sent))
        status, answer = self.server.answer
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def stand_in():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as answering:
        answering.sent = []
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        yield answering
        answering.shutdown()


def load(stand_in, path, body, tmp_path, *options):
    (tmp_path / "body.json").write_bytes(body)
    url = f"http://127.0.0.1:{stand_in.server_port}{path}"
    command = [sys.executable, LOAD, url, tmp_path / "body.json", "--seconds", "0.1"]
    command += ["--scores", GROUPS * SAMPLES, "--connections", 2, *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)


def rows_answer(scores, code=0):
    return {"error_code": code, "error_msg": "told", "score": scores}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, rows_answer([1.0] * 5)), "an answer has 5 scores, asked for 6"),
        ((200, rows_answer([0.0] * 6, 500)), "error 500: told"),
        ((503, {"error_code": 503}), "HTTP 503"),
    ],
)
def test_an_answer_that_is_not_one_ends_the_measurement(stand_in, bodies, tmp_path, answer, said):
    stand_in.answer = answer
    done = load(stand_in, "/", bodies["/"], tmp_path)
    assert done.returncode == 1
    assert said in done.stderr


def test_candidates_without_a_score_are_not_counted_as_scores(stand_in, bodies, tmp_path):
    scores = [{"score": 1.0}] * 5 + [{"score": None}]
    stand_in.answer = (200, {"request_id": "any", "verdicts": [{"candidates": scores}]})
    done = load(stand_in, "/v1/score", bodies["/v1/score"], tmp_path)
    assert "an answer has 5 scores, asked for 6" in done.stderr


@pytest.mark.parametrize(("options", "is_repeated"), [((), False), (("--repeat-id",), True)])
def test_every_request_has_an_id_of_its_own_unless_they_are_to_be_repeated(
    stand_in, bodies, tmp_path, options, is_repeated
):
    stand_in.answer = (200, {"verdicts": [{"candidates": [{"score": 1.0}] * 6}]})
    done = load(stand_in, "/v1/score", bodies["/v1/score"], tmp_path, *options)
    found = json.loads(done.stdout)
    ids = [sent["request_id"] for sent in stand_in.sent]
    assert len(ids) == found["requests"] + 1
    assert len(set(ids)) == (1 if is_repeated else len(ids))


def test_requests_carry_the_same_groups_in_both_protocols(bodies):
    rows, groups = json.loads(bodies["/"]), json.loads(bodies["/v1/score"])["groups"]
    candidates = [(group, candidate) for group in groups for candidate in group["candidates"]]
    assert [text.removesuffix("<|im_end|>") for text in rows["response"]] == [one["response"] for _, one in candidates]
    tasks = [json.loads(text.removesuffix("<|im_end|>")) for text in rows["tgt"]]
    assert tasks == [
        {key: group[key] for key in ("source", "src_lang", "trg_lang", "reference")} for group, _ in candidates
    ]


def test_a_server_that_does_not_start_is_told_with_what_it_said(server, tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"broken ended with status 3 .*: no room"),
        server.serving("broken", ["-c", "print('no room'); raise SystemExit(3)"], tmp_path),
    ):
        pass
