"""The chat endpoint of servers, and a verifier that asks the released model behind it as its authors do."""

from __future__ import annotations

import json

import pytest
from support.command_line import invoke, refusal
from support.completions_server import CompletionsServer, Refuse

from grrm import rank
from grrm.engine.openai_text import OpenAITextGenerator
from grrm.engine.openai_wire import served_model
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.http_client.client import NoAnswer
from grrm.inference.judge_sources import open_source
from grrm.judges.sources import read_sources


@pytest.fixture
def served():
    """Starts servers whose replies a test writes."""
    servers = []

    def start(script, **settings):
        servers.append(CompletionsServer(script, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def group(*answers):
    candidates = tuple(Candidate(str(i), text, text) for i, text in enumerate(answers))
    return Group("g", TranslationTask("2 + 2?", "", "", json.dumps({"answer": "4", "criteria": "10"})), candidates)


def source(**values):
    (read,) = read_sources([{"judge": "verifier", "chat_template": "server", "deadline_s": 30.0, **values}])
    return read


@pytest.mark.parametrize(
    ("model", "options", "head", "max_tokens"),
    [
        ("zhangchenxu/TinyV-1.5B", {}, "identifying false negatives", 8),
        ("TinyV-Qwen3-1.7B-Think", {}, "identifying if the model's answer", 512),
        ("TinyV-Qwen3-1.7B-Think", {"max_new_tokens": 16}, "identifying if the model's answer", 16),
        ("my-verifier", {}, "identifying false negatives", 8),
        ("my-verifier", {"verifier_prompt": "tinyv-qwen3"}, "identifying if the model's answer", 8),
    ],
)
def test_the_model_that_a_server_has_chooses_prompt_and_length(served, model, options, head, max_tokens):
    server = served(lambda *_: "Answer: True", model=model)
    judge = open_source(source(urls=[server.url, f"{server.url}/v1"], options=options | {"retries": 0}))
    (verdict,) = judge.judge([group("four", "4")])
    assert judge.think == ("Think" in model)
    assert verdict.scores == (10.0, 10.0)
    assert {path for path in server.paths if "model" not in path} == {"/v1/chat/completions"}
    (message,) = server.requests[0]["messages"]
    assert message["role"] == "user"
    assert head in message["content"]
    assert "<|im_start|>" not in message["content"]
    assert {body["max_tokens"] for body in server.requests} == {max_tokens}
    assert {body["model"] for body in server.requests} == {model}


def test_a_model_that_is_named_is_not_asked_for(served):
    server = served(lambda *_: "True")
    judge = open_source(source(urls=[server.url], model="TinyV-Qwen3-1.7B"))
    judge.judge([group("4")])
    assert judge.prompt_type == "tinyv-qwen3"
    assert server.paths == ["/v1/chat/completions"]


def test_grrm_rank_asks_the_released_model_by_its_prompt(served):
    server = served(lambda *_: "True", model="TinyV-Qwen3-1.7B")
    result = rank(None, ["2 + 2?"], [["4"]], "", "", judge="verifier", references=["4"], urls=[server.url])
    assert result["scores"] == [[10.0]]
    assert "identifying if the model's answer" in server.requests[0]["prompt"]


def test_the_command_asks_at_the_chat_endpoint_as_the_model_needs(served, tmp_path):
    server = served(lambda *_: "Answer: True", model="TinyV-1.5B-Think")
    rows, out = tmp_path / "answers.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"src_text": "2 + 2?", "trg_text": "4", "mt_texts": ["four"]}) + "\n")
    command = ["rank", str(rows), "--judge", "verifier", "--url", server.url, "--out", str(out)]
    invoke(*command, "--chat-template", "server")
    assert json.loads(out.read_text())["judge_scores"] == [10.0]
    assert [body["max_tokens"] for body in server.requests] == [512]
    assert "messages" in server.requests[0]
    invoke(*command, "--no-think", "--max-new-tokens", "16")
    assert server.requests[1]["max_tokens"] == 16
    assert server.requests[1]["prompt"].startswith("<|im_start|>user")
    said = refusal("rank", rows, "--judge", "verifier", "--model", ".", "--chat-template", "server")
    assert "is the chat endpoint of --url" in said


def test_refusals_and_silence_are_marks_without_the_prompt(served, caplog):
    too_long = {"error": {"message": "maximum context length is 4, not: secret question"}}
    server = served(lambda body, k: "True" if "4" in body["messages"][0]["content"] else Refuse(400, too_long))
    generator = OpenAITextGenerator([server.url], chat=True, unanswered="mark", deadline_s=20)
    texts = generator.generate_text(["4", "secret question"], temperature=0, max_new_tokens=8)
    assert [(text.text, text.finish_reason) for text in texts] == [("True", "stop"), ("", "too_long")]
    assert "secret" not in caplog.text
    away = OpenAITextGenerator(["http://127.0.0.1:9"], chat=True, unanswered="mark", deadline_s=1)
    (text,) = away.generate_text(["4"], temperature=0, max_new_tokens=8)
    assert text.finish_reason in ("unreachable", "timeout")
    with pytest.raises(NoAnswer, match="did not answer which model it has"):
        served_model(["http://127.0.0.1:9"], 0.5)


@pytest.mark.parametrize(("judge", "options"), [("pairwise", {}), ("gqm", {"score_reading": "expected"})])
def test_a_judge_that_reads_probabilities_of_a_chat_endpoint_is_not_opened(judge, options):
    with pytest.raises(UserError, match=f"judge {judge} reads probabilities of tokens"):
        open_source(source(judge=judge, options=options, urls=["http://127.0.0.1:9"], model="m"))


def test_a_token_that_is_refused_marks_no_prompt(served):
    server = served(lambda *_: "True")
    server.model_status = 401
    with pytest.raises(NoAnswer, match="401"):
        OpenAITextGenerator([server.url], chat=True, unanswered="mark").generate_text(
            ["4"], temperature=0, max_new_tokens=8
        )
    with pytest.raises(NoAnswer, match="401"):
        open_source(source(urls=[server.url]))


def test_translations_that_the_chat_endpoint_refuses_end_the_command(served, tmp_path):
    server = served(lambda *_: Refuse(400, {"error": {"message": "no"}}))
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"src_text": "zwei", "src_lang": "de", "trg_lang": "en"}) + "\n")
    with pytest.raises(NoAnswer, match="did not answer prompt 0"):
        invoke("translate", rows, "--url", server.url, "--chat-template", "server", "--out", out)
    assert "messages" in server.requests[0]


def test_a_malformed_answer_is_no_score(served):
    server = served(lambda *_: {"choices": []})
    with pytest.raises(NoAnswer, match="malformed at choices"):
        open_source(source(urls=[server.url], model="m", deadline_s=1.0)).judge([group("4")])


@pytest.mark.parametrize(
    ("values", "message"),
    [({"model": "m"}, "is the chat endpoint of urls"), ({"urls": ["http://a"], "tokenizer": "t"}, "tokenizer has no")],
)
def test_a_chat_endpoint_needs_servers_and_no_tokenizer(values, message):
    with pytest.raises(UserError, match=message):
        source(**values)
