"""A pool of servers whose failures are marked prompt by prompt: late, unreachable, or a mistake that is raised."""

from __future__ import annotations

import socket
import threading

import pytest
from support.completions_server import CompletionsServer, Refuse, completion
from support.local_server import FAST, refusing_url

from grrm.engine.openai_text import OpenAITextGenerator
from grrm.engine.openai_wire import unanswered_because
from grrm.http_client.client import NoAnswer

AWAY_S = 3.0  # for what is waited out until the deadline


@pytest.fixture
def start(closing):
    return lambda script: closing.enter_context(CompletionsServer(script))


@pytest.fixture
def closed_url(closing):
    return closing.enter_context(refusing_url())


def outcomes(urls, *prompts, **settings):
    values = FAST | {"model": "m", "unanswered": "mark"} | settings
    replies = OpenAITextGenerator(urls, **values).generate_text(prompts, temperature=0.0, max_new_tokens=5)
    return [(reply.text, reply.finish_reason) for reply in replies]


@pytest.mark.parametrize("status", [429, 502, 503])
def test_one_prompt_that_no_server_takes_leaves_the_others_their_replies(start, status):
    server = start(lambda body, _: Refuse(status) if body["prompt"] == "b" else f"<{body['prompt']}>")
    found = outcomes([server.url], "a", "b", "c", deadline_s=AWAY_S)
    assert found == [("<a>", "stop"), ("", "unreachable"), ("<c>", "stop")]


@pytest.mark.parametrize("status", [408, 504])
def test_a_gateway_that_gave_up_waiting_is_a_timeout(start, status):
    server = start(lambda body, _: Refuse(status))
    assert outcomes([server.url], "a") == [("", "timeout")]


TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens (808 in the prompt)"


@pytest.mark.parametrize("unanswered", ["raise", "mark"])
@pytest.mark.parametrize(
    "reason", [TOO_LONG, "Input text is too long, length of prompt token(9000) >= max_model_len(4096)"]
)
def test_a_prompt_too_long_for_the_servers_model_does_not_fail_the_others(start, unanswered, reason):
    refusal = Refuse(400, {"object": "error", "message": reason, "code": 400})
    server = start(lambda body, _: refusal if body["prompt"] == "b" else f"<{body['prompt']}>")
    found = outcomes([server.url], "a", "b", "c", unanswered=unanswered)
    assert found == [("<a>", "stop"), ("", "too_long"), ("<c>", "stop")]
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_another_refusal_is_never_taken_for_a_prompt_that_is_too_long(start, status):
    server = start(lambda body, _: Refuse(status, {"message": "max_tokens must be positive"}))
    with pytest.raises(NoAnswer, match="max_tokens must be positive"):
        outcomes([server.url], "a", "b")


def test_a_prompt_that_a_server_refuses_does_not_fail_the_others(start):
    refusal = Refuse(400, {"message": "invalid prompt"})
    server = start(lambda body, _: refusal if body["prompt"] == "b" else f"<{body['prompt']}>")
    assert outcomes([server.url], "a", "b", "c") == [("<a>", "stop"), ("", "unreachable"), ("<c>", "stop")]
    assert outcomes([server.url], "b") == [("", "unreachable")]
    assert len(server.requests) == 4


@pytest.mark.parametrize("code", [400, 500, 503])
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("Anna said good morning to them", "invalid value 'Anna said good morning to them'"),
        ("Anna said\ngood morning to them", "Input should be 'Anna said\\ngood morning to them'"),
        ("東京に行きました", "cannot encode 東京に行きました"),
        ("東京に行きました", "cannot encode \\u6771\\u4eac\\u306b\\u884c"),
    ],
)
def test_no_message_quotes_a_prompt(start, caplog, code, text, quoted):
    server = start(lambda body, _: Refuse(code, {"message": quoted}))
    with pytest.raises(NoAnswer) as caught:
        outcomes([server.url], text, text, unanswered="raise", deadline_s=AWAY_S if code == 503 else 120.0)
    told = str(caught.value) + caplog.text
    assert f"it answered HTTP {code}: the reason quotes the prompt and is left out" in told
    assert "Anna" not in told
    assert "東" not in told
    assert "u6771" not in told


def test_a_prompt_quoted_in_front_of_why_it_is_too_long_is_left_out_too(start, caplog):
    server = start(lambda body, _: Refuse(400, {"message": "prompt 'Anna said good morning' is too long"}))
    assert outcomes([server.url], "Anna said good morning to them") == [("", "too_long")]
    assert "HTTP 400: the prompt is too long" in caplog.text
    assert "Anna" not in caplog.text


def test_no_server_at_all_is_unreachable_with_and_without_a_model_name(closed_url):
    assert outcomes([closed_url], "a", "b", deadline_s=AWAY_S) == [("", "unreachable")] * 2
    assert outcomes([closed_url], "a", "b", model=None, deadline_s=AWAY_S) == [("", "unreachable")] * 2


def test_a_reply_that_does_not_come_in_time_is_a_timeout(start):
    hold = threading.Event()
    server = start(lambda body, _: hold.wait(120) and "late" if body["prompt"] == "b" else "<a>")
    try:
        assert outcomes([server.url], "a", "b", read_timeout_s=2.0) == [("<a>", "stop"), ("", "timeout")]
    finally:
        hold.set()


def test_the_tighter_limit_is_asked_for_at_every_call(start):
    server = start(lambda body, _: "fine")
    left = [0.0, 120.0]
    generator = OpenAITextGenerator([server.url], "m", unanswered="mark", remaining_s=lambda: left.pop(0), **FAST)
    first, second = (generator.generate_text(["a"], temperature=0.0, max_new_tokens=5)[0] for _ in range(2))
    assert (first.finish_reason, second.text) == ("timeout", "fine")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "because"),
    [(Refuse(404, {"error": {"message": "no such model"}}), None), ({"choices": []}, "failed")],
)
def test_a_mistake_and_a_malformed_answer_are_still_raised(start, answer, because):
    server = start(lambda body, _: answer)
    with pytest.raises(NoAnswer) as caught:
        outcomes([server.url], "a")
    assert unanswered_because(caught.value) == because


@pytest.mark.parametrize("answer", [Refuse(500, {"message": "engine"}), completion("half", "content_filter")])
def test_a_prompt_on_which_a_server_fails_leaves_the_others_their_replies(start, answer):
    server = start(lambda body, _: answer if body["prompt"] == "b" else f"<{body['prompt']}>")
    generator = OpenAITextGenerator([server.url], "m", unanswered="mark", **FAST)
    first, second = (
        generator.generate_text(prompts, temperature=0.0, max_new_tokens=5) for prompts in (["a", "b"], ["b"])
    )
    assert [(reply.text, reply.finish_reason) for reply in first] == [("<a>", "stop"), ("", "unreachable")]
    assert [reply.finish_reason for reply in second] == ["unreachable"]
    with pytest.raises(NoAnswer):
        OpenAITextGenerator([server.url], "m", **FAST).generate_text(["a", "b"], temperature=0.0, max_new_tokens=5)


def test_an_answer_broken_off_by_the_server_is_raised(start):
    server = start(lambda body, _: completion("half", "abort"))
    with pytest.raises(NoAnswer, match="abort"):
        outcomes([server.url], "a")


def test_without_marks_the_failure_names_its_kind(closed_url):
    with pytest.raises(NoAnswer) as caught:
        outcomes([closed_url], "a", unanswered="raise", deadline_s=AWAY_S)
    assert unanswered_because(caught.value) == "unreachable"


def test_the_log_counts_the_prompts_without_a_reply(closed_url, caplog):
    outcomes([closed_url], "a", "b", deadline_s=AWAY_S)
    assert "2 of 2 prompts without a reply, first: generation server" in caplog.text


def test_servers_that_have_gone_are_not_waited_for_again_and_are_asked_when_they_are_back(start):
    server = start(lambda body, _: Refuse(503) if server.model_status == 503 else "fine")
    settings = FAST | {"unanswered": "mark", "required_within_s": AWAY_S, "deadline_s": AWAY_S}
    generator = OpenAITextGenerator([server.url], "m", **settings)
    ends = []
    for status in (200, 503, 503, 200):
        server.model_status = status
        n_before = len(server.requests)
        (reply,) = generator.generate_text(["a"], temperature=0.0, max_new_tokens=5)
        ends.append((reply.finish_reason, len(server.requests) > n_before))
    assert ends == [("stop", True), ("unreachable", True), ("unreachable", False), ("stop", True)]


def test_servers_that_say_nothing_are_waited_for_once():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = FAST | {"unanswered": "mark", "required_within_s": 0.2, "connect_timeout_s": 0.2, "deadline_s": 0.6}
        generator = OpenAITextGenerator([f"http://127.0.0.1:{silent.getsockname()[1]}"], "m", **settings)
        replies = [generator.generate_text(["a"], temperature=0.0, max_new_tokens=5)[0] for _ in range(3)]
    assert [reply.finish_reason for reply in replies] == ["timeout", "unreachable", "unreachable"]
