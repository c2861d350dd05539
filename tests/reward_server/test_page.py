"""What the page at `/` is served with, and what it asks the server besides verdicts."""

from __future__ import annotations

import base64
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.judged_groups import judge_over
from support.reward_app import create_app, group, make_client, request_at_the_judge, rows_body, score_body
from support.text_models import TextModel

from grrm.gqm.chat import render_chatml
from grrm.judges.generative import first_prompts
from grrm.judges.gqm import GQMOptions
from grrm.judges.interface import OpenedGenerator
from grrm.judges.sqm import SQMOptions
from grrm_reward_server.hosting import HostedJudge
from grrm_reward_server.settings import Settings


def test_page_is_allowed_its_own_script_and_style_and_no_other_address():
    answer = make_client().get("/")
    assert answer.content_type == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://|//\w", re.sub(r"//[^\n]*text nodes", "", answer.text))


def test_page_itself_holds_nothing_and_needs_no_token_but_all_it_asks_does():
    client = make_client(token="secret")
    assert client.get("/").status_code == 200
    for method, path in [("GET", "/v1/judges"), ("GET", "/v1/live"), ("POST", "/v1/prompts"), ("POST", "/")]:
        assert client.open(path, method=method, json=score_body()).status_code == 401


def test_last_verdicts_are_listed_newest_first_without_their_texts():
    client = make_client()
    assert client.get("/v1/live").get_json() == {
        "running": 0,
        "waiting": 0,
        "median_ms": None,
        "p95_ms": None,
        "recent": [],
    }
    for number in range(30):
        client.post("/v1/score", json=score_body(group(f"g{number}", "four"), request_id=f"r{number}"))
    client.post("/", json=rows_body())
    answer = client.get("/v1/live")
    live = answer.get_json()
    assert [recent["group_id"] for recent in live["recent"][1:]] == [f"g{number}" for number in range(29, 10, -1)]
    assert live["recent"][1] == live["recent"][1] | {"judge": "recording", "scores": [4.0], "statuses": ["scored"]}
    assert 0 < live["median_ms"] <= live["p95_ms"]
    assert "four" not in answer.text


def test_requests_at_the_judge_and_before_it_are_counted():
    with ThreadPoolExecutor(2) as threads, request_at_the_judge() as (client, _, _):
        for name in ("second", "third"):
            threads.submit(client().post, "/v1/score", json=score_body(request_id=name))
        live = {}
        while live.get("waiting") != 2:
            live = client().get("/v1/live").get_json()
        assert live["running"] == 1


@pytest.mark.parametrize(
    "options", [GQMOptions(), SQMOptions(), GQMOptions(permutations=3, cache_size=4), GQMOptions(max_candidates=2)]
)
def test_prompts_shown_are_those_that_the_model_is_asked_first(options):
    model = TextModel(lambda prompt: "no idea")
    judge = judge_over(model, options)

    def prompts_of(group):
        return first_prompts(group, options, OpenedGenerator(model, render_chatml, None))

    client = create_app(Settings(), HostedJudge(judge, prompts_of=prompts_of)).test_client()
    body = score_body(group("g", "one", "two", "<s>", "one"))
    (shown,) = client.post("/v1/prompts", json=body).get_json()["prompts"]
    assert model.prompts == []
    client.post("/v1/score", json=body)
    assert shown
    assert shown == model.prompts[: len(shown)]
    assert len(model.prompts) > len(shown)  # the retries, which ask the same again


def test_judges_without_a_model_have_no_prompts():
    assert make_client().post("/v1/prompts", json=score_body()).get_json() == {"prompts": [[]]}


def test_requests_for_prompts_are_checked_like_those_for_verdicts():
    answer = make_client(max_candidates=1).post("/v1/prompts", json=score_body(group("g", "one", "two")))
    assert (answer.status_code, answer.get_json()["field"]) == (422, "groups[0].candidates")
