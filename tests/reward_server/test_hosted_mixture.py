"""A mixture of judges behind the server: its parts in answers, the tasks it takes, and what it refuses."""

from __future__ import annotations

import json
import socket
import time

import pytest
from support.completions_server import CompletionsServer
from support.local_server import LocalServer
from support.reward_app import group, make_client, score_body
from support.reward_protocol import ok, status

from grrm.errors import UserError
from grrm.http_client.exchange import DEADLINE_HEADER, AnswerError
from grrm.rewards.messages import ScoreRequest
from grrm.rewards.mixing import mix
from grrm.rewards.protocol import verdicts_from_answer
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings


@pytest.fixture
def start(closing):
    return lambda *script: closing.enter_context(LocalServer(*script))


def hosted(**options):
    return build_hosted_judge(Settings(judge="mixture", judge_options=options))


def mixture_client(*sources):
    return make_client(hosted(sources=list(sources)))


def test_a_mixture_is_hosted_and_a_client_gets_its_parts():
    sources = [{"judge": "chrf", "weight": 3}, {"judge": "consensus", "normalise": "rank"}]
    body = score_body(group("g", "Good morning, Anna!", "Good day, Anna!"))
    answer = mixture_client(*sources).post("/v1/score", json=body)
    request = ScoreRequest.model_validate(body)
    (verdict,) = verdicts_from_answer(request, answer.data)
    assert [(part.name, part.weight, part.normalise) for part in verdict.parts] == [
        ("chrf", 3.0, "none"),
        ("consensus", 1.0, "rank"),
    ]
    assert mix(verdict.parts).scores == verdict.scores
    assert len(set(verdict.parts[0].scores)) == 2


@pytest.mark.parametrize("nested", [False, True])
def test_a_mixture_with_a_strict_rule_is_ready_and_refuses_what_the_rule_does(nested):
    rule = {"judge": "answer", "options": {"rule": "gsm8k"}}
    client = mixture_client({"judge": "consensus", "fallback": rule} if nested else rule, {"judge": "chrf"})
    assert client.get("/readyz").status_code == 200
    refused = client.post("/v1/score", json=score_body(group("g", "1", "2", reference="no number")))
    assert (refused.status_code, refused.get_json()["field"]) == (422, "groups[0]")
    assert client.post("/v1/score", json=score_body(group("g", "1", "2", reference="1"))).status_code == 200


@pytest.mark.parametrize("src_lang", ["xx", ""])
def test_a_mixture_refuses_languages_that_a_prompt_cannot_name(src_lang):
    with CompletionsServer(lambda *_: "A: 7, B: 2") as server:
        client = mixture_client({"judge": "gqm", "urls": [server.url]}, {"judge": "chrf"})
        refused = client.post("/v1/score", json=score_body(group("g", "one", "two", src_lang=src_lang)))
        assert (refused.status_code, refused.get_json()["field"]) == (422, "groups[0]")
        assert client.post("/v1/score", json=score_body(group("g", "one", "two"))).status_code == 200


def test_the_longest_ids_reach_the_server_of_a_part(start):
    client = mixture_client({"judge": "server", "urls": [start(ok).url]}, {"judge": "chrf"})
    body = score_body(group("g" * 256, "7", "2"))
    for index, candidate in enumerate(body["groups"][0]["candidates"]):
        candidate["candidate_id"] = str(index) * 256
    (verdict,) = client.post("/v1/score", json=body).get_json()["verdicts"]
    assert verdict["parts"][0]["scores"] == [7.0, 2.0]


@pytest.mark.parametrize("code", [401, 404])
def test_a_part_whose_server_refuses_token_or_address_leaves_the_server_unready(start, code, caplog):
    client = mixture_client({"judge": "server", "urls": [start(status(code)).url]}, {"judge": "chrf"})
    assert client.get("/readyz").status_code == 503
    assert f"it answered HTTP {code} at groups[0]: no" in caplog.text
    assert "correct its address, the token or the request, then start again" in caplog.text


def test_a_requests_deadline_ends_the_wait_for_a_part():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = mixture_client({"judge": "chrf"}, {"judge": "server", "urls": [url], "deadline_s": 100.0})
        start = time.monotonic()
        late = client.post("/v1/score", json=score_body(), headers={DEADLINE_HEADER: "1"})
        assert time.monotonic() - start < 50
    assert (late.status_code, late.get_json()["verdicts"]) == (504, [])


def test_parts_follow_their_candidates_whatever_the_order_of_the_answer():
    sources = [{"judge": "chrf"}]
    body = score_body(group("g", "Good morning, Anna!", "Good day, Anna!"))
    client = mixture_client(*sources)
    answer = client.post("/v1/score", json=body).get_json()
    (verdict,) = answer["verdicts"]
    for column in (verdict["candidates"], verdict["parts"][0]["scores"], verdict["parts"][0]["statuses"]):
        column.reverse()
    (found,) = verdicts_from_answer(ScoreRequest.model_validate(body), json.dumps(answer).encode())
    assert found.parts[0].scores == found.scores
    verdict["parts"][0]["scores"].pop()
    with pytest.raises(AnswerError, match="part 'chrf' has not one status and one score for each candidate"):
        verdicts_from_answer(ScoreRequest.model_validate(body), json.dumps(answer).encode())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "judge 'mixture' needs the option sources"),
        ({"source": []}, "did you mean 'sources'"),
        ({"sources": [{"judge": "chr"}]}, "sources, entry 1: unknown judge 'chr'"),
    ],
)
def test_a_mixture_of_nothing_usable_is_one_sentence(options, message):
    with pytest.raises(UserError, match=message):
        hosted(**options)
