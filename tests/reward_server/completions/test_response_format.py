"""`response_format` of `grrm serve`, a real process with a tiny random model: answers follow their schema."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

pytest.importorskip("llguidance")
import jsonschema_rs

SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 10},
        "verdict": {"enum": ["better", "worse"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
    },
    "required": ["score", "verdict", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # a random model likes blanks
}
SAMPLING = ({"temperature": 0}, {"seed": 3}, {"seed": 4, "temperature": 2.0, "top_p": 0.9, "frequency_penalty": 0.5})
PROMPT = "Translate Guten Morgen"


def of_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def complete(client, **asked):
    form = {"response_format": asked.pop("response_format")} if "response_format" in asked else {}
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 400} | asked
    return client.completions.create(**asked, extra_body=form)


def chat(client, **asked):
    turns = [{"role": "user", "content": PROMPT}]
    return client.chat.completions.create(**({"model": "tiny", "messages": turns, "max_tokens": 400} | asked))


def check_follows(schema, text):
    jsonschema_rs.validate(schema, json.loads(text))


@pytest.mark.parametrize("sampling", SAMPLING)
def test_answers_of_both_routes_follow_the_schema(client, sampling):
    wanted = {"response_format": of_schema(SCHEMA), "n": 4} | sampling
    for choice in complete(client, **wanted).choices:
        assert choice.finish_reason == "stop"
        check_follows(SCHEMA, choice.text)
    for choice in chat(client, **wanted).choices:
        assert choice.finish_reason == "stop"
        check_follows(SCHEMA, choice.message.content)


def test_a_stream_is_the_whole_answer_in_pieces(client):
    asked = {"response_format": of_schema(SCHEMA), "seed": 5}
    pieces = [chunk.choices[0].delta.content or "" for chunk in chat(client, stream=True, **asked)]
    assert len(pieces) > 3
    assert "".join(pieces) == chat(client, **asked).choices[0].message.content


def test_json_objects_and_texts(client):
    schema = {"type": "object"}
    for seed in range(8):
        choice = chat(client, response_format={"type": "json_object"}, seed=seed, max_tokens=900).choices[0]
        if choice.finish_reason == "stop":
            check_follows(schema, choice.message.content)
        else:  # cut, as everywhere
            assert choice.message.content.lstrip().startswith("{")
    plain, text = (chat(client, seed=1, **form) for form in ({}, {"response_format": {"type": "text"}}))
    assert plain.choices == text.choices


def test_a_limit_cuts_the_json_and_a_stop_text_ends_it(client):
    asked = {"response_format": of_schema(SCHEMA), "temperature": 0}
    whole = complete(client, **asked).choices[0].text
    cut = complete(client, max_tokens=5, **asked).choices[0]
    assert cut.finish_reason == "length"
    assert whole.startswith(cut.text)
    assert cut.text != whole
    stopped = complete(client, stop='"verdict"', **asked).choices[0]
    assert (stopped.text, stopped.finish_reason) == (whole[: whole.index('"verdict"')], "stop")


def test_log_probs_are_those_among_the_allowed_tokens(client):
    schema = {"enum": ["a", "b"], "x-guidance": {"whitespace_flexible": False}}
    asked = {"response_format": of_schema(schema), "logprobs": True, "top_logprobs": 20, "seed": 2}
    tokens = chat(client, **asked).choices[0].logprobs.content
    assert len(tokens) > 1
    for token in tokens:
        assert sum(math.exp(other.logprob) for other in token.top_logprobs) == pytest.approx(1, abs=1e-4)
        assert token.token in [other.token for other in token.top_logprobs]


def test_other_requests_of_the_batch_answer_as_without_the_constraint(client):
    alone = [complete(client, seed=seed, n=2).choices for seed in range(4)]
    with ThreadPoolExecutor(8) as pool:
        constrained = [
            pool.submit(complete, client, seed=seed, n=4, response_format=of_schema(SCHEMA)) for seed in range(4)
        ]
        beside = [pool.submit(complete, client, seed=seed, n=2) for seed in range(4)]
        assert [one.result().choices for one in beside] == alone
        texts = [choice.text for one in constrained for choice in one.result().choices]
    assert len(set(texts)) > 4
    for text in texts:
        check_follows(SCHEMA, text)


DEEP = {"type": "integer"}
for _ in range(70):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
REFUSED = {
    "unknown type": ({"type": "foo"}, "foo"),
    "keyword that is not known": ({"type": "object", "propertyNames": {"pattern": "a"}}, "propertyNames"),
    "nothing follows it": ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
    "endless": ({"$ref": "#"}, "no text satisfies it"),
    "too deep": (DEEP, "recursion limit"),
    "too large": ({"enum": ["x" * 200_000]}, "more than 131072"),
    "too costly": ({"type": "integer", "multipleOf": 999_983}, "to compile, make it simpler"),
    "a file": ({"$ref": "file:///etc/passwd"}, "/etc/passwd"),
    "lenient by itself": ({"x-guidance": {"lenient": True}, "not": {}}, "not"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_schema_that_cannot_be_followed_is_refused_with_a_sentence(client, case):
    schema, reason = REFUSED[case]
    for _ in range(2):  # also when it is remembered
        with pytest.raises(openai.BadRequestError) as refusal:
            chat(client, response_format=of_schema(schema))
        assert refusal.value.param == "response_format"
        assert reason in refusal.value.message
    assert chat(client, max_tokens=2).choices


@pytest.mark.parametrize(
    "form",
    [
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_object", "json_schema": {"name": "a", "schema": {}}},
        {"type": "json_schema", "json_schema": {"schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "a"}},
        "json_object",
    ],
)
def test_malformed_format_is_refused_by_name(client, form):
    with pytest.raises(openai.BadRequestError, match="response_format") as refusal:
        chat(client, response_format=form)
    assert refusal.value.param == "response_format"
