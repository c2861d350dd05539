"""What the server promises for its judges, asked of a real server with a judge of each kind."""

from __future__ import annotations

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests
from support.completions_server import CompletionsServer
from support.reward_app import group, score_body
from support.reward_servers import cost, reward_server
from support.stopped_clock import PATIENCE_S, eventually
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

from grrm.http_client.exchange import DEADLINE_HEADER

pytestmark = pytest.mark.slow
VERDICT = "B says more.\n\n### Final Ranking:\n\nB > A\n\n### Scores:\n\nA: 3, B: 8"
KINDS = {"metric": "chrf", "reward model": "ranker", "own model": "gqm", "model server": "gqm"}
# A group that the judge does not score, whatever stands beside it, and what its candidates are said to be.
UNSCORED = {
    "metric": (group("bad", "one", "two", reference=None), "missing_reference"),
    "reward model": (group("bad", "one", "two " * 4000), "too_long"),
    "own model": (group("bad", "one", "one"), "single_candidate"),
    "model server": (group("bad", "one", "one"), "single_candidate"),
}


@pytest.fixture(scope="module")
def options_of(tmp_path_factory):
    """The options of a server with a judge of each kind."""
    folder = tmp_path_factory.mktemp("models")
    with CompletionsServer(lambda body, _: VERDICT) as model:
        yield {
            "metric": ["--judge", "chrf"],
            "reward model": ["--judge", "ranker", "--model", str(write_tiny_reward_model(folder / "r", "ranker"))],
            "own model": ["--judge", "gqm", "--model", str(write_tiny_checkpoint(folder / "gqm"))],
            "model server": ["--judge", "gqm", "--openai-url", model.url],
        }


@pytest.fixture(scope="module", params=KINDS)
def served(request, options_of):
    with reward_server(*options_of[request.param]) as (process, url):
        yield request.param, process, url


def ask(url, *groups, name="r", **headers):
    body = score_body(*groups, request_id=name)
    return requests.post(f"{url}/v1/score", json=body, headers=headers, timeout=PATIENCE_S)


def many(n_groups):
    return [group(f"g{number}", f"one {number}", "two") for number in range(n_groups)]


def outcomes(answer, group_id):
    (verdict,) = [verdict for verdict in answer.json()["verdicts"] if verdict["group_id"] == group_id]
    return [(candidate["status"], candidate["score"]) for candidate in verdict["candidates"]]


def test_it_is_ready_before_anything_is_asked_and_tells_which_judge_it_hosts(served):
    kind, _, url = served
    assert requests.get(f"{url}/readyz", timeout=PATIENCE_S).json() == {"status": "ready"}
    assert requests.get(f"{url}/healthz", timeout=PATIENCE_S).json()["judge"]["name"] == KINDS[kind]


def test_texts_of_a_mebibyte_cost_little_memory_and_hold_up_no_probe(served):
    kind, process, url = served
    texts = ["The quick brown fox jumps over the lazy dog. " * 1330 + str(number) for number in range(15)]
    body = json.dumps(score_body(group("g", *texts), request_id="large")).encode()
    status, growth, _, probe_s = cost(process, url, "/v1/score", body)
    assert status == 200, kind
    assert growth < 100e6
    assert probe_s < 0.5


def test_a_group_that_is_not_scored_changes_nothing_for_the_one_beside_it(served):
    kind, _, url = served
    bad, status = UNSCORED[kind]
    alone, beside = ask(url, group("good", "one", "two"), name="alone"), ask(url, bad, group("good", "one", "two"))
    for (said, score), (other, other_score) in zip(outcomes(alone, "good"), outcomes(beside, "good"), strict=True):
        assert said == other
        # Processors round a matrix product by its number of rows, which is that of the groups scored together.
        assert score == (None if score is None else pytest.approx(other_score, rel=1e-6))
    assert status in [said for said, _ in outcomes(beside, "bad")]
    assert all(score is None for said, score in outcomes(beside, "bad") if said == status)


def test_a_repeated_request_is_answered_with_the_first_answer_and_another_under_its_name_refused(served):
    _, _, url = served
    first, again = ask(url, *many(3), name="repeated"), ask(url, *many(3), name="repeated")
    assert first.content == again.content
    assert ask(url, *many(2), name="repeated").status_code == 409


def test_at_the_deadline_only_whole_groups_are_answered_and_later_all_are(served):
    _, _, url = served
    late = ask(url, *many(200), name="late", **{DEADLINE_HEADER: "0.001"})
    assert late.status_code == 504
    assert len(late.json()["verdicts"]) < 200
    said = [candidate["status"] for verdict in late.json()["verdicts"] for candidate in verdict["candidates"]]
    assert "judge_timeout" not in said
    assert len(ask(url, *many(4), name="late").json()["verdicts"]) == 4


def test_a_client_that_hangs_up_holds_up_nobody(served):
    _, _, url = served
    body = json.dumps(score_body(*many(200), request_id="gone")).encode()
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as client:
        head = f"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    assert ask(url, *many(2), name="after").status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_accepted_is_answered_when_the_server_is_stopped(options_of, kind):
    with ExitStack() as stack:
        process, url = stack.enter_context(reward_server(*options_of[kind]))
        threads = stack.enter_context(ThreadPoolExecutor(1))
        accepted = threads.submit(ask, url, *many(64))
        live = f"{url}/v1/live"
        eventually(lambda: requests.get(live, timeout=PATIENCE_S).json()["running"] or accepted.done())
        process.send_signal(signal.SIGTERM)
        assert len(accepted.result(PATIENCE_S).json()["verdicts"]) == 64
        assert process.wait(PATIENCE_S) == 0
