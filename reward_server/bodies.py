"""Request bodies: read, counted before they are parsed, and checked.

A parser makes an object of hundreds of bytes out of two characters, so a body that is small enough to read can be too
much to parse. What a request may hold bounds what its body may: how many strings, lists, objects and other values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flask import g, request
from pydantic import BaseModel, ValidationError

from grrm.errors import first_error
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS
from grrm.http_client.exchange import DEADLINE_HEADER

from .problems import RequestProblem
from .settings import Settings

M = TypeVar("M", bound=BaseModel)
SMALL_BODY_BYTES = 2**18  # whatever it holds, its objects take some 20 MB and 40 ms at most: it is not counted
SPARE = 1000  # values beyond those of a full request: a mistake of some fields is still told with its place
# More fields side by side than any message has. A run of fields is what stands between two brackets.
MANY_FIELDS = b":" * 24
_AS_BRACKET = bytes.maketrans(b"]{}", b"[[[")
_NEITHER = bytes(byte for byte in range(256) if byte not in b"[]{}:")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Most strings, lists and objects together, and commas in a body. Names of fields are strings too."""

    strings: int
    containers: int
    commas: int


def score_limits(settings: Settings) -> BodyLimits:
    """The limits of `POST /v1/score`: groups have seven fields, candidates four, and segments of context two."""
    groups, rows, segments = settings.max_groups, settings.max_rows, MAX_CONTEXT_SEGMENTS * settings.max_groups
    strings, containers = 12 * groups + 7 * rows + 4 * segments, 3 * groups + rows + segments
    return BodyLimits(strings + SPARE, containers + SPARE, 7 * groups + 4 * rows + 2 * segments + SPARE)


def rows_limits(settings: Settings) -> BodyLimits:
    """The limits of `POST /`, whose rows are three texts; fields that are not ours have room too."""
    return BodyLimits(3 * settings.max_rows + SPARE, SPARE, 3 * settings.max_rows + SPARE)


def read_json_body() -> bytes:
    """The body of the current request; `g.n_body_bytes` is then its length.

    Raises RequestProblem 415 for one that is not called JSON.
    """
    if request.mimetype != "application/json":
        raise RequestProblem(415, "the body must be JSON: send the header `Content-Type: application/json`")
    length = request.content_length
    if length is None or length > (request.max_content_length or 0) or not request.environ.get("wsgi.input_terminated"):
        body: bytes = request.get_data(cache=False)  # counts what it reads, and refuses what is too much
    else:
        body = request.environ["wsgi.input"].read(length)  # here already: counting would copy it twice
    g.n_body_bytes = len(body)
    return body


def check_structure(body: bytes, limits: BodyLimits) -> None:
    """Raises RequestProblem 422 when `body` has more strings, containers or values than `limits`, or too many fields.

    The counts are exact up to the first character that is not JSON, where the parser ends. They are made by searches
    for single bytes, which are some ten times as fast as the parser.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of the quotes begins and ends strings
    _check("strings", body.count(b'"') // 2, limits.strings)
    outside = b'"'.join(body.split(b'"')[::2])
    _check("lists and objects", outside.count(b"[") + outside.count(b"{"), limits.containers)
    _check("commas", outside.count(b","), limits.commas)
    if MANY_FIELDS in outside.translate(_AS_BRACKET, _NEITHER):
        raise RequestProblem(422, "an object of the body has more fields than any message")


def parse(model: type[M], body: bytes, limits: BodyLimits, *, invalid_json_status: int) -> M:
    """`body` as a message. Raises RequestProblem 422, or `invalid_json_status` for a body that is not JSON."""
    if len(body) > SMALL_BODY_BYTES:
        check_structure(body, limits)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        kind, field, message = first_error(error)
        status = invalid_json_status if kind == "json_invalid" else 422
        raise RequestProblem(status, message, field=field or None) from error


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise RequestProblem(
            422, f"the body has {count} {what}, more than the {limit} of a full request: send less per request"
        )


def client_has_gone() -> Callable[[], bool]:
    """The test if the client of the current request has hung up; false on servers that cannot tell."""
    disconnected: Callable[[], bool] = request.environ.get("waitress.client_disconnected", lambda: False)
    return disconnected


def deadline_of_request() -> float:
    """The time on time.monotonic()'s clock until which the current request's answer is of use; infinity by default.

    Raises RequestProblem 422 for a deadline that is none.
    """
    value = request.headers.get(DEADLINE_HEADER)
    if value is None:
        return math.inf
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise RequestProblem(422, "the deadline must be a number of seconds above zero", field=DEADLINE_HEADER)
    return time.monotonic() + seconds
