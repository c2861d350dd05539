"""`grrm serve` and vLLM answer the same requests for the same model alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.engine_servers import MODEL, EngineServer, Start
from support.rl_processes import TinyWorld

COMMON = {"model": MODEL, "prompt": [5, 6, 7, 300, 20], "max_tokens": 12, "temperature": 0}


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 3},
        {"logprobs": 0, "repetition_penalty": 1.5},
        {"logprobs": 2, "temperature": 1.0, "top_k": 1},
        {"logprobs": 0, "frequency_penalty": 1.5, "presence_penalty": 0.5},
        {"logprobs": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "top_k": -1, "echo": False},
    ],
    ids=["alternatives", "repetition_penalty", "top_k", "counts", "off"],
)
def test_completions_are_the_same(
    policy_world: TinyWorld, vllm: EngineServer, start: Start, fields: dict[str, Any]
) -> None:
    own, other = (complete(server, fields) for server in (start("grrm", policy_world.policy), vllm))
    assert own["text"] == other["text"]
    assert own["finish_reason"] == other["finish_reason"]
    assert own["logprobs"]["tokens"] == other["logprobs"]["tokens"]
    assert own["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-5)
    if fields["logprobs"]:
        for mine, theirs in zip(own["logprobs"]["top_logprobs"], other["logprobs"]["top_logprobs"], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)


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


def test_answers_of_both_follow_a_schema(policy_world: TinyWorld, vllm: EngineServer, start: Start) -> None:
    """Their grammars may choose other blanks, so that equality is printed alone."""
    pytest.importorskip("llguidance")
    import jsonschema_rs

    asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    fields = {"response_format": asked, "max_tokens": 400}
    answers = [complete(server, fields) for server in (start("grrm", policy_world.policy), vllm)]
    for answer in answers:
        assert answer["finish_reason"] == "stop"
        jsonschema_rs.validate(SCHEMA, json.loads(answer["text"]))
    own, other = (answer["text"] for answer in answers)
    print(f"{own!r} and {other!r} are {'equal' if own == other else 'not equal'}")


def complete(server: EngineServer, fields: dict[str, Any]) -> dict[str, Any]:
    (choice,) = json.loads(server.ask("/v1/completions", json.dumps(COMMON | fields).encode()))["choices"]
    return dict(choice)
