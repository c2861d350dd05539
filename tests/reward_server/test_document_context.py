"""Document context on the wire: sent where it is known, limited like other texts, refused where it is missing."""

from __future__ import annotations

import json

import pytest
from support.completions_server import CompletionsServer
from support.reward_app import RecordingJudge, create_app, group, make_client, rows_body, score_body

from grrm.gqm.groups import Candidate, ContextSegment, Group, TranslationTask
from grrm.rewards.messages import ScoreRequest
from grrm.rewards.protocol import request_from_groups, task_of
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings

CONTEXT = (ContextSegment("Eins", "One"), ContextSegment("Zwei", None))


def sent(context) -> ScoreRequest:
    task = TranslationTask("Drei", "de", "en", context=context)
    return request_from_groups("r", [Group("g", task, (Candidate("0", "Three", "Three"),))])


@pytest.mark.parametrize("context", [None, (), CONTEXT])
def test_context_arrives_as_it_was_sent(context):
    body = sent(context).model_dump_json()
    assert task_of(ScoreRequest.model_validate_json(body).groups[0]).context == context


def test_requests_of_tasks_without_context_are_those_of_before():
    assert list(json.loads(sent(None).model_dump_json())["groups"][0]) == [
        "group_id",
        "source",
        "src_lang",
        "trg_lang",
        "reference",
        "candidates",
    ]


def test_the_judge_gets_the_context_of_a_request():
    judge = RecordingJudge()
    body = json.loads(sent(CONTEXT).model_dump_json())
    assert make_client(judge).post("/v1/score", json=body).status_code == 200
    assert judge.calls[0][0].task.context == CONTEXT


def test_context_counts_among_the_texts_of_a_request():
    client = make_client(max_text_chars=10)
    context = [{"source": "Eins"}, {"source": "Zwei", "translation": "x" * 11}]
    answer = client.post("/v1/score", json=score_body(group(context=context)))
    assert answer.status_code == 422
    assert answer.get_json()["field"] == "groups[0].context[1].translation"
    answer = make_client().post("/v1/score", json=score_body(group(context=[{"source": "x"}] * 17)))
    assert answer.status_code == 422


def test_a_judge_with_context_refuses_groups_without_it():
    with CompletionsServer(lambda *_: "A: 7, B: 2") as server:
        options = {"context_segments": 1, "prompt_type": "score"}
        settings = Settings(judge="gqm", openai_urls=[server.url], judge_options=options)
        client = create_app(settings, build_hosted_judge(settings)).test_client()
        assert client.get("/readyz").status_code == 200
        refused = client.post("/v1/score", json=score_body(group("g", "one", "two")))
        assert refused.status_code == 422
        assert "columns document and position" in refused.get_json()["error_msg"]
        assert (
            client.post("/", json=rows_body(tgt=['{"source":"a","src_lang":"de","trg_lang":"en"}'] * 2)).status_code
            == 422
        )
        context = [{"source": "Eins", "translation": "One"}]
        answer = client.post("/v1/score", json=score_body(group("g", "one", "two", context=context))).get_json()
        assert [candidate["score"] for candidate in answer["verdicts"][0]["candidates"]] == [7, 2]
        assert "```\nEins\n```\nTranslation text:\n```\nOne\n" in server.requests[-1]["prompt"]
