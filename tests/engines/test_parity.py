"""`grrm serve` and vLLM answer the same requests of OpenAI's client for the same model alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from engines.engine_servers import MODEL, EngineServer
from support.rl_processes import TinyWorld

COMMON = {"prompt": [5, 6, 7, 300, 20], "max_tokens": 12, "temperature": 0}
ENDING = 2  # the token that ends a turn
VARIED = {"repetition_penalty": 1.3, "max_tokens": 60}  # a random model repeats itself
COMPLETIONS: dict[str, dict[str, Any]] = {
    "alternatives": {"logprobs": 3},
    "repetition_penalty": {"logprobs": 0, "repetition_penalty": 1.5},
    "top_k": {"logprobs": 2, "temperature": 1.0, "top_k": 1},
    "top_p": {"logprobs": 0, "temperature": 1.0, "top_p": 1e-6},
    "counts": {"logprobs": 0, "frequency_penalty": 1.5, "presence_penalty": 0.5},
    "off": {"logprobs": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "top_k": -1, "echo": False},
    "echo": {"logprobs": 2, "echo": True, "prompt": ["Grüße, 日本 and мир!", "a"]},
    "echo_alone": {"logprobs": 1, "echo": True, "prompt": [1, 5, ENDING, 300, 0, 20], "max_tokens": 0},
    "stop": {"logprobs": 0, "stop": ["a", "xyz"], **VARIED},
    "n": {"logprobs": 1, "n": 2, "seed": 5, "temperature": 1.0, "top_k": 1},
    "end": {"logprobs": 2, "repetition_penalty": 0.01, "prompt": [[first, 6, ENDING] for first in range(5, 15)]},
    "no_logprobs": {"prompt": "Grüße, 日本", "echo": True, **VARIED},
}
TURNS = [{"role": "user", "content": "Guten Morgen"}]


@pytest.fixture(scope="session")
def clients(
    policy_world: TinyWorld, vllm: EngineServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[openai.OpenAI]]:
    """Clients of `grrm serve` and of vLLM."""
    own = EngineServer("grrm", policy_world.policy, tmp_path_factory.mktemp("grrm") / "log")
    yield [openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) for server in (own, vllm)]
    own.kill()


@pytest.mark.parametrize("fields", COMPLETIONS.values(), ids=list(COMPLETIONS))
def test_completions_are_the_same(clients: list[openai.OpenAI], fields: dict[str, Any]) -> None:
    own, other = (client.completions.create(model=MODEL, **known(COMMON | fields)).choices for client in clients)
    for mine, theirs in zip(own, other, strict=True):
        assert (mine.text, mine.finish_reason) == (theirs.text, theirs.finish_reason)
        assert (mine.logprobs is None) == (theirs.logprobs is None)
        if mine.logprobs and theirs.logprobs:
            assert mine.logprobs.tokens == theirs.logprobs.tokens
            assert mine.logprobs.text_offset == theirs.logprobs.text_offset
            assert mine.logprobs.token_logprobs == near(theirs.logprobs.token_logprobs)
            for pair in zip(mine.logprobs.top_logprobs, theirs.logprobs.top_logprobs, strict=True):
                check_alternatives(*pair)
    if fields is COMPLETIONS["end"]:
        assert "stop" in {choice.finish_reason for choice in own}


def known(fields: dict[str, Any]) -> dict[str, Any]:
    """Parameters as OpenAI's client takes them, which does not know all of vLLM's."""
    others = {name: value for name, value in fields.items() if name in ("top_k", "repetition_penalty")}
    return {name: value for name, value in fields.items() if name not in others} | {"extra_body": others}


def near(logprobs: Any) -> Any:
    return pytest.approx(logprobs, abs=1e-5)


def check_alternatives(own: dict[str, float] | None, other: dict[str, float] | None) -> None:
    """Equal, but that of several tokens without a text vLLM gives the log-prob of the last, `grrm serve` the best."""
    if own is None or other is None:
        assert own is other
        return
    assert set(own) == set(other)
    assert own.get("", 0.0) >= other.get("", 0.0) - 1e-5
    assert own | {"": 0.0} == near(other | {"": 0.0})


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": True, "top_logprobs": 3},
        {"logprobs": True, "temperature": 1.0, "top_k": 1, "n": 2, "seed": 5, "top_logprobs": 2},
        {"logprobs": True, "frequency_penalty": 1.5, "stop": ["a"], "max_tokens": 60},
        {"max_completion_tokens": 9},
    ],
    ids=["alternatives", "n", "stop", "limit"],
)
def test_chats_are_the_same(clients: list[openai.OpenAI], fields: dict[str, Any]) -> None:
    asked = {"messages": TURNS, "temperature": 0} | fields
    asked |= {} if "max_completion_tokens" in asked else {"max_tokens": 16}
    own, other = (client.chat.completions.create(model=MODEL, **known(asked)).choices for client in clients)
    for mine, theirs in zip(own, other, strict=True):
        assert (mine.message.content, mine.finish_reason) == (theirs.message.content, theirs.finish_reason)
        assert (mine.logprobs is None) == (theirs.logprobs is None)
        if mine.logprobs and theirs.logprobs:
            for one, two in zip(mine.logprobs.content, theirs.logprobs.content, strict=True):
                assert as_rows([one, *one.top_logprobs]) == as_rows([two, *two.top_logprobs])


def as_rows(tokens: list[Any]) -> list[tuple[Any, ...]]:
    return [(token.token, token.bytes, near(token.logprob)) for token in tokens]


def test_streams_are_the_same(clients: list[openai.OpenAI]) -> None:
    """However the tokens are put together."""
    own, other = (streamed(client) for client in clients)
    logprobs, theirs = own.pop("token_logprobs"), other.pop("token_logprobs")
    assert own == other
    assert logprobs == near(theirs)


def streamed(client: openai.OpenAI) -> dict[str, Any]:
    asked = {"model": MODEL, "prompt": "Grüße", "stream": True, "logprobs": 0, "temperature": 0}
    choices = [chunk.choices[0] for chunk in client.completions.create(**known(asked | VARIED)) if chunk.choices]
    listed = [choice.logprobs for choice in choices if choice.logprobs]
    columns = ("tokens", "token_logprobs", "text_offset")
    return {name: [value for one in listed for value in getattr(one, name)] for name in columns} | {
        "text": "".join(choice.text for choice in choices),
        "finish_reason": choices[-1].finish_reason,
    }


SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 10},
        "verdict": {"enum": ["better", "worse"]},
    },
    "required": ["score", "verdict"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # a random model likes blanks
}


def test_answers_of_both_follow_a_schema(clients: list[openai.OpenAI]) -> None:
    """Their grammars may choose other blanks, so that equality is printed alone."""
    pytest.importorskip("llguidance")
    import jsonschema_rs

    asked: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    texts = []
    for client in clients:
        fields = COMMON | {"max_tokens": 400, "extra_body": {"response_format": asked}}
        (choice,) = client.completions.create(model=MODEL, **fields).choices
        assert choice.finish_reason == "stop"
        jsonschema_rs.validate(SCHEMA, json.loads(choice.text))
        texts.append(choice.text)
    own, other = texts
    print(f"{own!r} and {other!r} are {'equal' if own == other else 'not equal'}")
