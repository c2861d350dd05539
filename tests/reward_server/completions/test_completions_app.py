"""The completions application over an engine that the test steps: what is asked, refused, stopped and given up."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stepped_engine import SteppedEngine
from support.stopped_clock import eventually

from grrm.engine.scheduler import BatchScheduler
from grrm_reward_server.completions.app import CompletionsApp
from grrm_reward_server.completions.replies import ServedModel
from grrm_reward_server.settings import CompletionSettings


def decode(token_ids):
    return "".join(map(chr, token_ids))


def render(turns):
    if turns[-1]["role"] != "user":
        raise ValueError("the last turn is not the user's")
    return "".join(f"{turn['role'][0]}:{turn['content']};" for turn in turns)


class Server:
    def __init__(self, *, stands_still=False, template=render, token=None, **settings):
        self.engine = SteppedEngine(stands_still=stands_still)
        self.scheduler = BatchScheduler(self.engine)
        model = ServedModel("m", self.scheduler, lambda text: [ord(c) for c in text], decode, decode, (0,), template)
        self.app = CompletionsApp(CompletionSettings(**settings), model, token)

    def post(self, route, body, **environment):
        data = body if isinstance(body, bytes) else json.dumps({"model": "m"} | body)
        client = self.app.flask.test_client()
        return client.post(f"/v1/{route}", data=data, content_type="application/json", environ_overrides=environment)

    def complete(self, **body):
        return self.post("completions", body)

    def chat(self, *contents, **body):
        messages = [{"role": "user", "content": content} for content in contents]
        return self.post("chat/completions", {"messages": messages} | body)


def events_of(response):
    lines = response.get_data(as_text=True).split("\n\n")
    assert lines[-1] == ""
    return [line.removeprefix("data: ") for line in lines[:-1]]


def error_of(response):
    return response.get_json()["error"]


@pytest.fixture(scope="module")
def server():
    return Server()


def test_texts_and_token_ids_are_continued_each_n_times(server):
    answer = server.complete(prompt=["a", "xp"], max_tokens=3, n=2).get_json()
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, "bcd"), (1, "bcd"), (2, "qrs"), (3, "qrs")]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}
    for prompt in ([97], [[97]], "a"):
        (choice,) = server.complete(prompt=prompt).get_json()["choices"]
        assert choice["text"] == "bcdefghijklmnopq"  # 16 tokens unless it is said


def test_a_chat_goes_through_the_template(server):
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}]
    answer = server.post("chat/completions", {"messages": messages, "max_completion_tokens": 2}).get_json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "<=", "refusal": None}
    assert answer["usage"]["prompt_tokens"] == len("s:x;u:y;")
    refused = server.post("chat/completions", {"messages": [{"role": "assistant", "content": "x"}]})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "messages")
    assert "not the user's" in error_of(refused)["message"]


@pytest.mark.parametrize("listed", [{}, {"logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 1}])
def test_a_stop_text_ends_a_completion_and_what_it_would_have_gone_on_with(server, listed):
    n_cancelled = server.engine.n_cancelled
    answer = server.complete(prompt="xa", max_tokens=10**5, stop=["fg", "zz"], **listed).get_json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("xabcde" if "echo" in listed else "bcde", "stop")
    assert answer["usage"]["completion_tokens"] == 6
    eventually(lambda: server.engine.n_cancelled == n_cancelled + 1)
    if "logprobs" in listed:
        told = choice["logprobs"]
        prompt = {"x": None, "a": -3.0} if "echo" in listed else {}
        assert told["tokens"] == [*prompt, *"bcdefg"]
        assert told["token_logprobs"] == [*prompt.values(), *[-1.0] * 6]
        assert [len(top) for top in told["top_logprobs"][len(prompt) :]] == [listed["logprobs"]] * 6
        assert told["text_offset"] == list(range(len(told["tokens"])))


def test_logprobs_are_those_of_the_tokens_up_to_the_stop(server):
    answer = server.complete(prompt="a", max_tokens=9, stop="d", logprobs=0).get_json()
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["b", "c", "d"],
        "token_logprobs": [-1.0] * 3,
        "top_logprobs": [{"b": -1.0}, {"c": -1.0}, {"d": -1.0}],
        "text_offset": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("body", "top_k", "penalty"),
    [({}, 0, 1.0), ({"top_k": 5, "repetition_penalty": 1.5}, 5, 1.5), ({"top_k": -1, "repetition_penalty": 1}, 0, 1.0)],
)
def test_what_vllm_has_beside_openai_has_its_effect(server, body, top_k, penalty):
    server.complete(prompt="a", max_tokens=1, **body)
    params = server.engine.params[-1]
    assert (params.top_k, params.repetition_penalty) == (top_k, penalty)


@pytest.mark.parametrize(("stop", "tokens"), [(None, "bcdefg"), ("d", "bcd")])
def test_alternatives_of_each_token_come_with_a_whole_reply(server, stop, tokens):
    n_cancelled, most = server.engine.n_cancelled, 10**5 if stop else 6
    answer = server.complete(prompt="a", max_tokens=most, stop=stop, logprobs=2).get_json()
    told = answer["choices"][0]["logprobs"]
    assert "".join(told["tokens"]) == tokens
    chat = server.chat("a", max_tokens=most, stop=stop and "?", logprobs=True, top_logprobs=2).get_json()["choices"][0]
    for one in chat["logprobs"]["content"]:
        assert [other["logprob"] for other in one["top_logprobs"]] == [-1.0, -2.0]
        assert one["top_logprobs"][0] == {key: one[key] for key in ("token", "logprob", "bytes")}
    eventually(lambda: server.engine.n_cancelled == n_cancelled + 2 * bool(stop))
    assert told["top_logprobs"] == [{token: -1.0, chr(ord(token) + 1): -2.0} for token in tokens]


@pytest.mark.parametrize("max_tokens", [2, 0])
@pytest.mark.parametrize("prompts", [["xa", "bc"], [[120, 97], [98, 99]]])
def test_an_echo_begins_each_choice_with_its_prompt(server, prompts, max_tokens):
    asked = {"prompt": prompts, "max_tokens": max_tokens, "echo": True, "n": 2}
    answer = server.complete(**asked).get_json()
    texts = ["xabc"[: 2 + max_tokens], "bcde"[: 2 + max_tokens]]
    assert [choice["text"] for choice in answer["choices"]] == [text for text in texts for _ in range(2)]
    assert answer["usage"]["completion_tokens"] == 4 * max_tokens
    for choice in server.complete(**asked, logprobs=0).get_json()["choices"]:
        listed = choice["logprobs"]
        assert "".join(listed["tokens"]) == choice["text"]
        assert listed["token_logprobs"] == [None, -3.0, -1.0, -1.0][: 2 + max_tokens]
        assert listed["text_offset"] == list(range(2 + max_tokens))


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({}, "prompt", "required"),
        ({"prompt": "a", "logprobs": 2, "stream": True}, "logprobs", "a stream has those of the tokens drawn alone"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"prompt": "a", "echo": True, "stream": True}, "echo", "a stream has the completion alone"),
        ({"prompt": "a" * 2**20, "echo": True, "logprobs": 0, "n": 2}, "prompt", "exceed 1048576"),
        ({"prompt": "a", "best_of": 3}, "best_of", "not supported"),
        ({"prompt": "a", "frequency_penalty": 2.5}, "frequency_penalty", "less than or equal to 2"),
        ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"prompt": "a", "repetition_penalty": 1e-39}, "repetition_penalty", "or equal to 0.01"),
        ({"prompt": "a", "top_k": -2}, "top_k", "-1"),
        ({"prompt": "a", "min_p": 0.5}, "min_p", "Unrecognized request argument"),
        ({"prompt": "a", "temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"prompt": "a", "temperature": 1e39}, "temperature", "less than or equal to 100"),
        ({"prompt": "a", "top_p": 0}, "top_p", "greater than 0"),
        ({"prompt": "a", "n": 129}, "n", "less than or equal"),
        ({"prompt": ["a"] * 9, "n": 128}, "n", "exceeds 1024"),
        ({"prompt": "a", "max_tokens": -1, "echo": True}, "max_tokens", "greater than or equal to 0"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens", "nothing without echo"),
        ({"prompt": "a", "stop": [""]}, "stop", "not empty"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "0 prompts"),
        ({"prompt": [["a"]]}, "prompt", ""),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(server, body, param, part):
    response = server.complete(**body)
    assert response.status_code == 400
    assert (error_of(response)["type"], error_of(response)["param"]) == ("invalid_request_error", param)
    assert part in error_of(response)["message"]


def test_alternatives_of_a_chat_are_log_probs_of_a_whole_reply(server):
    for further, part in (({}, "needs logprobs"), ({"logprobs": True, "stream": True}, "a stream")):
        response = server.chat("a", top_logprobs=2, **further)
        assert (response.status_code, error_of(response)["param"]) == (400, "top_logprobs")
        assert part in error_of(response)["message"]


@pytest.mark.parametrize("name", ["tools", "response_format", "store"])
def test_of_a_chat_too(server, name):
    wanted = {"tools": [{"type": "function"}], "response_format": {"type": "json_object"}}
    response = server.chat("a", **{name: wanted.get(name, True)})
    assert (response.status_code, error_of(response)["param"]) == (400, name)


def test_values_that_ask_for_nothing_are_let_pass(server):
    harmless = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "user": "u", "n": None}
    assert server.complete(prompt="a", echo=False, best_of=1, **harmless).status_code == 200
    extra = {"tools": [], "response_format": {"type": "text"}, "top_logprobs": 0, "metadata": {}, "store": False}
    extra |= {"safety_identifier": "u", "prompt_cache_key": "k", "service_tier": "auto", "parallel_tool_calls": True}
    assert server.chat("a", max_tokens=1, **harmless, **extra).status_code == 200
    assert error_of(server.chat("a", service_tier="priority"))["param"] == "service_tier"


def test_an_answer_may_be_sent_back_as_a_turn(server):
    first = server.chat("a", max_tokens=1).get_json()["choices"][0]["message"]
    dumped = first | dict.fromkeys(("annotations", "audio", "function_call", "tool_calls"))  # by OpenAI's client
    for turn in (first, dumped, first | {"tool_calls": []}):
        messages = [{"role": "user", "content": "a"}, turn, {"role": "user", "content": "b"}]
        assert server.post("chat/completions", {"messages": messages, "max_tokens": 1}).status_code == 200
        refused = server.post("chat/completions", {"messages": [turn | {"tool_calls": [{"id": "1"}]}]})
        assert (refused.status_code, error_of(refused)["param"]) == (400, "messages")


def test_every_refusal_has_openais_form(server):
    client = server.app.flask.test_client()
    answers = {
        400: server.post("completions", b"{"),
        404: client.get("/v1/nothing"),
        405: client.get("/v1/completions"),
        415: client.post("/v1/completions", data="{}"),
        413: Server(max_body_bytes=50).complete(prompt="a" * 100),
        422: server.post("completions", b"[" * 100_000),
    }
    for status, response in answers.items():
        assert response.status_code == status
        assert set(error_of(response)) == {"message", "type", "param", "code"}
    other_model = server.complete(model="n", prompt="a")
    assert (other_model.status_code, error_of(other_model)["code"]) == (404, "model_not_found")
    long = server.complete(prompt=[5] * (10**5))
    assert long.status_code == 200
    assert error_of(Server(template=None).chat("a"))["message"].startswith("this server's model has no chat template")


def test_a_prompt_longer_than_the_model_is_told_as_one():
    server = Server()
    server.engine.max_prompt_tokens = 5
    response = server.complete(prompt="abcdef")
    assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
    assert server.complete(prompt="abcde").status_code == 200


def test_a_stream_says_the_same_in_pieces(server):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(server.complete(prompt=["a", "p"], max_tokens=4, **options))
    assert events.pop() == "[DONE]"
    *chunks, last = map(json.loads, events)
    texts = ["".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i) for i in (0, 1)]
    assert texts == ["bcde", "qrst"]
    assert [c["choices"][0]["finish_reason"] for c in chunks].count("stop") == 2
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8)


def test_a_chats_stream_begins_with_the_role_and_ends_with_the_reason(server):
    *chunks, done = events_of(server.chat("a", max_tokens=3, stream=True))
    assert done == "[DONE]"
    deltas = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert "".join(one["delta"].get("content", "") for one in deltas) == "<=>"
    assert [one["finish_reason"] for one in deltas] == [None] * (len(deltas) - 1) + ["stop"]


def test_an_engine_that_fails_is_an_error_and_the_next_request_is_answered():
    server = Server()
    server.engine.fault = FloatingPointError("not finite")
    response = server.complete(prompt="a")
    assert (response.status_code, error_of(response)["type"]) == (500, "server_error")
    server.engine.fault = FloatingPointError("not finite")
    (event,) = events_of(server.complete(prompt="a", stream=True))
    assert json.loads(event)["error"]["code"] == "server_error"
    assert server.complete(prompt="a", max_tokens=1).get_json()["choices"][0]["text"] == "b"


def test_a_server_whose_engine_fails_is_not_ready_until_it_draws_again():
    server = Server()
    probe = server.app.flask.test_client()
    fault = server.engine.fault = FloatingPointError("not finite")
    assert probe.get("/readyz").status_code == 200  # nobody has asked it
    assert server.complete(prompt="a").status_code == 500
    server.engine.fault = fault
    refused = probe.get("/readyz")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert "the engine fails" in error_of(refused)["message"]
    assert probe.get("/readyz").status_code == 200
    assert server.scheduler.n_running + server.scheduler.n_waiting == 0


def test_a_request_that_takes_too_long_is_given_up():
    server = Server(stands_still=True, request_timeout_s=0.05)
    assert server.complete(prompt="a").status_code == 504
    server.engine.go()
    eventually(lambda: server.scheduler.n_running + server.scheduler.n_waiting == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_that_hangs_up_has_asked_for_is_given_up(stream):
    server, gone = Server(stands_still=True), []
    environment = {"waitress.client_disconnected": lambda: bool(gone)}
    with ThreadPoolExecutor(1) as threads:
        leaving = threads.submit(server.post, "completions", {"prompt": "a", "stream": stream}, **environment)
        eventually(lambda: server.engine.entered)
        gone.append(True)
        leaving.result(120).close()
        server.engine.go()
        eventually(lambda: server.engine.n_cancelled == 1)


def test_requests_beyond_the_limit_and_after_the_end_are_told_to_come_back():
    server = Server(stands_still=True, max_in_flight=1)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(server.complete, prompt="a", max_tokens=2)
        eventually(lambda: server.engine.entered)
        busy = server.complete(prompt="b")
        server.app.is_stopping = True
        stopping = server.complete(prompt="b")
        server.engine.go()
        assert first.result(120).get_json()["choices"][0]["text"] == "bc"
    assert (busy.status_code, error_of(busy)["code"], busy.headers["Retry-After"]) == (503, "overloaded", "1")
    assert (stopping.status_code, error_of(stopping)["code"]) == (503, "stopping")


def test_a_streams_time_ends_with_its_last_chunk(server):
    def n_told():
        text = server.app.flask.test_client().get("/metrics").get_data(as_text=True)
        return float(text.partition('grrm_request_seconds_count{route="/v1/completions"} ')[2].split()[0])

    server.complete(prompt="a", max_tokens=1)
    before, response = n_told(), server.complete(prompt="a", max_tokens=1, stream=True)
    assert n_told() == before
    response.close()
    assert n_told() == before + 1


def test_counters_tell_tokens_and_what_runs(server):
    text = server.app.flask.test_client().get("/metrics").get_data(as_text=True)
    assert 'grrm_requests_total{code="200",route="/v1/completions"}' in text
    assert "grrm_sequences_running 0" in text
    assert "grrm_completion_tokens_total" in text
