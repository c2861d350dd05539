"""The description of the server's requests and answers, made from the models that check them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from grrm import __version__
from grrm.http_client.exchange import DEADLINE_HEADER
from grrm.rewards.messages import PartialAnswer, Problem, ScoreAnswer, ScoreRequest
from grrm.rewards.rows_protocol import RowsAnswer, RowsRequest

from .page import JudgesAnswer, LiveAnswer, PromptsAnswer

Schemas = dict[Any, dict[str, Any]]  # by model
REQUESTS: tuple[type[BaseModel], ...] = (ScoreRequest, RowsRequest)
ANSWERS: tuple[type[BaseModel], ...] = (
    *(ScoreAnswer, PartialAnswer, RowsAnswer, Problem),
    *(JudgesAnswer, LiveAnswer, PromptsAnswer),
)
REFUSALS = {
    "400": "the body is not JSON",
    "401": "the token is missing or wrong",
    "409": "the request_id was used for another request",
    "413": "the body is too large",
    "415": "the body is not called JSON",
    "422": "a field is missing, wrong, too long or one of too many; `field` says which",
    "500": "the judge failed; `reference_id` leads to the log",
    "503": "busy, not ready or stopping; Retry-After says when to come back",
    "504": "the deadline has passed",
}
OF_BODIES = ("400", "401", "409", "413", "415", "422", "500", "503")


def describe(*, needs_token: bool) -> dict[str, Any]:
    """An OpenAPI 3.1 document of all routes."""
    # Of the answers too the schema is what the client checks them by.
    pairs, definitions = models_json_schema(
        [(model, "validation") for model in (*REQUESTS, *ANSWERS)], ref_template="#/components/schemas/{model}"
    )
    of: Schemas = {model: schema for (model, _), schema in pairs.items()}
    deadline = {
        "name": DEADLINE_HEADER,
        "in": "header",
        "description": "How many seconds after its arrival the answer is still of use.",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    }
    score = _operation("Judge groups", of, ScoreAnswer, body=ScoreRequest, refusals=OF_BODIES)
    score["responses"]["504"] = _answer("what was done at the deadline", of[PartialAnswer])
    rows = _operation("Judge rows (PaddleNLP)", of, RowsAnswer, body=RowsRequest, refusals=OF_BODIES)
    prompts = _operation("The model's prompts", of, PromptsAnswer, body=ScoreRequest, refusals=(*OF_BODIES, "504"))
    score["parameters"] = prompts["parameters"] = [deadline]
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "paddle-grrm reward server", "version": __version__},
        "paths": {
            "/": {"get": _plain("The page to try the judge by hand", "text/html"), "post": rows},
            "/v1/score": {"post": score},
            "/v1/prompts": {"post": prompts},
            "/v1/judges": {"get": _operation("The judges", of, JudgesAnswer)},
            "/v1/live": {"get": _operation("What goes on", of, LiveAnswer)},
            "/healthz": {"get": _plain("The process answers", "application/json")},
            "/readyz": {"get": _plain("The judge answers", "application/json")},
            "/metrics": {"get": _plain("Measurements for Prometheus", "text/plain")},
            "/openapi.json": {"get": _plain("This document", "application/json")},
        },
        "components": {"schemas": definitions["$defs"]},
    }
    document["paths"]["/readyz"]["get"]["responses"]["503"] = _answer(REFUSALS["503"], of[Problem])
    if needs_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path in ("/", "/healthz"):
            document["paths"][path]["get"]["security"] = []
    return document


def _operation(
    summary: str,
    of: Schemas,
    answer: type[BaseModel],
    *,
    body: type[BaseModel] | None = None,
    refusals: tuple[str, ...] = ("401",),
) -> dict[str, Any]:
    answers = {"200": _answer(summary, of[answer])}
    answers |= {status: _answer(REFUSALS[status], of[Problem]) for status in refusals}
    operation: dict[str, Any] = {"summary": summary, "responses": answers}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": of[body]}}}
    return operation


def _plain(summary: str, content_type: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": summary, "content": {content_type: {}}}}}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
