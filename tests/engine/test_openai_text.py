"""Text from OpenAI-compatible servers over real sockets: order, pools, retries, deadlines, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.completions_server import MODEL, CompletionsServer, Refuse, completion
from support.local_server import FAST

from grrm.engine.openai_text import OpenAITextGenerator
from grrm.http_client.client import NoAnswer

PATIENT = FAST | {"attempts": 3}


def echo(body: dict[str, Any], number: int) -> str:
    return f"<{body['prompt']}>"


@pytest.fixture
def start(closing):
    return lambda script=echo: closing.enter_context(CompletionsServer(script))


def generator(*servers: CompletionsServer, **settings: Any) -> OpenAITextGenerator:
    return OpenAITextGenerator([server.url for server in servers], **{**PATIENT, **settings})


def replies(source: OpenAITextGenerator, *prompts: str, **options: Any) -> list[str]:
    return [reply.text for reply in source.generate_text(prompts, temperature=0.0, max_new_tokens=8, **options)]


def test_replies_keep_the_order_of_the_prompts_however_they_arrive(start):
    def later_first(body, number):
        time.sleep(0.01 * (20 - int(body["prompt"])) / 20)
        return echo(body, number)

    prompts = [str(i) for i in range(20)]
    assert replies(generator(start(later_first)), *prompts) == [f"<{prompt}>" for prompt in prompts]


def test_the_request_carries_everything_that_was_asked_for(start):
    server = start()
    source = generator(server, stop=("<|im_end|>",), token="s3cret")
    source.generate_text(["a\ud800b"], temperature=0.7, top_p=0.9, max_new_tokens=5, seeds=[11])
    assert server.requests == [
        {
            "model": MODEL,
            "prompt": "a\ufffdb",
            "n": 1,
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 5,
            "stop": ["<|im_end|>"],
            "seed": 11,
        }
    ]
    assert server.tokens == ["Bearer s3cret"]


def test_the_servers_are_asked_for_their_model_once_and_only_if_none_is_named(start):
    server = start()
    source = generator(server)
    replies(source, "a")
    replies(source, "b")
    assert server.paths.count("/v1/models") == 1
    other = start()
    replies(generator(other, model="mine"), "a")
    assert "/v1/models" not in other.paths
    assert other.requests[0]["model"] == "mine"


def test_reason_and_length_of_a_reply_are_the_servers(start):
    source = generator(start(lambda body, number: completion("cut", "length", 8)))
    (reply,) = source.generate_text(["a"], temperature=1.0, max_new_tokens=8)
    assert (reply.finish_reason, reply.n_tokens) == ("length", 8)


def test_an_address_may_be_given_with_v1(start):
    server = start()
    assert replies(OpenAITextGenerator([f"{server.url}/v1/"], **PATIENT), "a") == ["<a>"]


@pytest.mark.parametrize(
    "failure",
    [
        Refuse(503, {"error": {"message": "loading"}}),
        Refuse(429, {"error": {"message": "slow down"}}, Retry_After="0"),
        b"{",
        {"choices": [], "usage": {"completion_tokens": 1}},
        {"choices": [{"text": "no usage", "finish_reason": "stop"}]},
        completion("broken off", "abort"),
        completion("no reason", None),
    ],
    ids=["503", "429", "not JSON", "no choice", "no usage", "aborted", "no reason"],
)
def test_a_failed_answer_is_asked_for_again(start, failure):
    server = start(lambda body, number: failure if number == 0 else "fine")
    assert replies(generator(server), "a") == ["fine"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("model", [None, "m"])
def test_a_pool_goes_on_without_a_server_that_is_broken(start, model):
    broken, good = start(lambda body, number: Refuse(500)), start()
    broken.model_status = 500
    prompts = [str(i) for i in range(6)]
    assert replies(generator(broken, good, model=model), *prompts) == [f"<{prompt}>" for prompt in prompts]
    assert broken.paths


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": {"message": "best_of must be at least n.", "code": 400}}, ": best_of must be at least n"),
        ({"object": "error", "message": "too\nlong", "code": 400}, ": too long"),
        ({"error": "no such model"}, ": no such model"),
        (b"<html>", ""),
    ],
)
def test_a_refusal_is_final_and_its_reason_is_quoted(start, body, reason):
    server = start(lambda request, number: Refuse(400, body))
    with pytest.raises(NoAnswer) as caught:
        replies(generator(server, model="m"), "a")
    assert f"generation server {server.url} did not answer prompt 0 at attempt 1: it answered HTTP 400{reason}" in str(
        caught.value
    )
    assert len(server.requests) == 1


def test_no_prompts_send_no_request(start):
    server = start()
    assert replies(generator(server)) == []
    assert server.paths == []


def test_as_many_seeds_as_prompts(start):
    with pytest.raises(ValueError, match="1 seeds for 2 prompts"):
        replies(generator(start()), "a", "b", seeds=[1])


def test_tokens_are_counted_by_the_tokenizer_or_bounded_by_bytes(start):
    class Words:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": text.split()}

    assert generator(start(), tokenizer=Words()).count_tokens("zwei Wörter") == 2
    assert generator(start()).count_tokens("zwei Wörter") == len("zwei Wörter".encode())


def test_choices_of_tokens_are_asked_for_and_read(start):
    def answer(body: dict[str, Any], number: int) -> Any:
        told = completion("A: 9")
        tops = [{"A: ": -0.1}, {"9": -0.2, "8": -1.9}]
        told["choices"][0]["logprobs"] = {"tokens": ["A: ", "9"], "token_logprobs": [-0.1, -0.2], "top_logprobs": tops}
        return told

    server = start(answer)
    sampling = {"temperature": 0.0, "max_new_tokens": 8}
    (reply,) = generator(server).generate_text(["p"], **sampling, top_logprobs=2)
    assert server.requests[0]["logprobs"] == 2
    assert [token.text for token in reply.tokens] == ["A: ", "9"]
    assert reply.tokens[1].choices == (("9", -0.2), ("8", -1.9))
    (plain,) = generator(server).generate_text(["p"], **sampling)
    assert plain.tokens == ()
    assert "logprobs" not in server.requests[1]


def test_a_server_without_choices_is_told(start):
    with pytest.raises(NoAnswer, match=r"the answer has no top_logprobs of its tokens"):
        generator(start(), attempts=1).generate_text(["p"], temperature=0.0, max_new_tokens=8, top_logprobs=2)


@pytest.mark.parametrize("logprob", [float("nan"), 800.0])
def test_log_probabilities_that_are_none_are_no_answer(start, logprob):
    told = completion("9")
    told["choices"][0]["logprobs"] = {"tokens": ["9"], "top_logprobs": [{"9": -0.1, "8": logprob}]}
    server = start(lambda *_: told)
    with pytest.raises(NoAnswer, match="a log-probability that is none"):
        generator(server, attempts=1).generate_text(["p"], temperature=0.0, max_new_tokens=8, top_logprobs=2)
