"""The common base of both Flask applications: access, metrics and logs, admission, errors, and an orderly end."""

from __future__ import annotations

import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from flask import Flask, Response, g, request
from pydantic import BaseModel
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from .access import is_authorized
from .limits import Slots
from .logs import REQUEST_ID_HEADER, log_answer, request_id
from .metrics import CONTENT_TYPE, Metrics
from .problems import RequestProblem, defect
from .settings import HttpSettings

logger = logging.getLogger(__name__)


class Application(ABC):
    """A Flask application behind an optional bearer token, with `/metrics`. Texts of requests are never logged.

    Subclasses add their routes, and say with `error_body` which form an error has.
    """

    open_routes: ClassVar[frozenset[tuple[str, str]]] = frozenset()  # without a token
    token_remedy: ClassVar[str] = "send the header `Authorization: Bearer ...`"

    def __init__(
        self, settings: HttpSettings, metrics: Metrics, token: str | None, max_tokens: float = math.inf
    ) -> None:
        self.metrics, self.token = metrics, token
        self.slots = Slots(settings.max_in_flight, max_tokens)
        self.is_stopping = False  # then what takes work is refused
        self.flask = Flask(type(self).__name__, static_folder=None)
        self.flask.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
        self.flask.before_request(self._admit)
        self.flask.after_request(self._account)
        self.flask.register_error_handler(RequestProblem, self.answer_problem)
        self.flask.register_error_handler(HTTPException, self._answer_http_error)
        self.flask.register_error_handler(Exception, lambda error: self.answer_problem(defect(error)))
        self.add_routes([("GET", "/metrics", self.get_metrics)])

    def add_routes(self, routes: Iterable[tuple[str, str, Callable[..., Response]]]) -> None:
        """Serve (method, path, view) each."""
        for method, path, view in routes:
            self.flask.add_url_rule(path, f"{view.__name__} {path}", view, methods=[method])

    @abstractmethod
    def error_body(self, problem: RequestProblem) -> bytes:
        """Return the JSON of an error."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Return whether no model is at work."""

    def require_running(self) -> None:
        """Raise RequestProblem 503 once the server is stopping."""
        if self.is_stopping:
            message = "the server is stopping and takes no more requests"
            raise RequestProblem(503, message, code="stopping", retry_after_s=5)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """One of the slots for requests that take work; the threads beyond them stay free for the probes."""
        self.require_running()
        with self.slots.hold(g.n_body_bytes):
            yield

    def get_metrics(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.render(), content_type=CONTENT_TYPE)

    def refusal(self, method: str, path: str, authorization: str | None) -> RequestProblem | None:
        """The problem of a request without the token, None for one that may go on."""
        is_open = (method.replace("HEAD", "GET"), path) in self.open_routes
        if self.token is None or is_open or is_authorized(authorization, self.token):
            return None
        return RequestProblem(401, f"this server asks for a token: {self.token_remedy}", code="invalid_api_key")

    def _admit(self) -> Response | None:
        g.start_s = time.perf_counter()
        refusal = self.refusal(request.method, request.path, request.headers.get("Authorization"))
        return None if refusal is None else self.answer_problem(refusal)

    def _account(self, response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "other"
        self.metrics.add("grrm_requests_total", route=route, code=str(response.status_code))
        level = logging.DEBUG if request.method == "GET" else logging.INFO
        if response.status_code >= 400:
            level = logging.WARNING
        start_s = g.start_s

        def observe() -> None:
            self.metrics.observe("grrm_request_seconds", time.perf_counter() - start_s, route=route)

        response.call_on_close(observe) if response.is_streamed else observe()
        response.headers[REQUEST_ID_HEADER] = request_id()
        log_answer(logger, level, route, response.status_code, time.perf_counter() - start_s)
        return response

    def answer_problem(self, problem: RequestProblem) -> Response:
        """The answer to a request that cannot be served."""
        response = Response(self.error_body(problem), status=problem.status, mimetype="application/json")
        if problem.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        if problem.retry_after_s is not None:
            response.headers["Retry-After"] = str(problem.retry_after_s)
        return response

    def _answer_http_error(self, error: HTTPException) -> Response:
        status = error.code or 500
        message = error.description or error.name
        if status == 413:
            message = f"the body exceeds {self.flask.config['MAX_CONTENT_LENGTH']} bytes: send less per request"
        response = self.answer_problem(RequestProblem(status, message))
        if isinstance(error, MethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response


def json_response(answer: BaseModel | dict[str, Any]) -> Response:
    """An answer as JSON."""
    text = answer.model_dump_json() if isinstance(answer, BaseModel) else json.dumps(answer, allow_nan=False)
    return Response(text, mimetype="application/json")
