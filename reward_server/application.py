"""The common base of both Flask applications: access, metrics and logs, errors, and an orderly end."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from .access import is_authorized
from .logs import REQUEST_ID_HEADER, log_answer, request_id
from .metrics import CONTENT_TYPE, Metrics

logger = logging.getLogger(__name__)
STOPPING = "the server is stopping and takes no more requests"


class Application(ABC):
    """A Flask application behind an optional bearer token, with `/metrics`. Texts of requests are never logged.

    Subclasses add their routes, and say with `problem` which form an error has.
    """

    open_routes: ClassVar[frozenset[tuple[str, str]]] = frozenset()  # without a token
    token_remedy: ClassVar[str] = "send the header `Authorization: Bearer ...`"

    def __init__(self, name: str, metrics: Metrics, *, token: str | None, max_body_bytes: int) -> None:
        self.metrics, self.token = metrics, token
        self.is_stopping = False
        self.flask = Flask(name, static_folder=None)
        self.flask.config["MAX_CONTENT_LENGTH"] = max_body_bytes
        self.flask.before_request(self._admit)
        self.flask.after_request(self._account)
        self.flask.register_error_handler(HTTPException, self._answer_http_error)
        self.add_routes([("GET", "/metrics", self.get_metrics)])

    def add_routes(self, routes: Iterable[tuple[str, str, Callable[..., Response]]]) -> None:
        """Serve (method, path, view) each."""
        for method, path, view in routes:
            self.flask.add_url_rule(path, f"{view.__name__} {path}", view, methods=[method])

    @abstractmethod
    def problem(self, status: int, message: str) -> Response:
        """Return an error answer."""

    def begin_stopping(self) -> None:
        """Refuse what takes work from now on."""
        self.is_stopping = True

    def get_metrics(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.render(), content_type=CONTENT_TYPE)

    def refusal(self, method: str, path: str, authorization: str | None) -> tuple[int, str] | None:
        """Status and message for a request without the token, None for one that may go on."""
        if self.token is None or (method, path) in self.open_routes or is_authorized(authorization, self.token):
            return None
        return 401, f"this server asks for a token: {self.token_remedy}"

    def _admit(self) -> Response | None:
        g.start_s = time.perf_counter()
        refusal = self.refusal(request.method, request.path, request.headers.get("Authorization"))
        if refusal is None:
            return None
        response = self.problem(*refusal)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _account(self, response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "other"
        self.metrics.add("grrm_requests_total", route=route, code=str(response.status_code))
        level = logging.DEBUG if request.method == "GET" and response.status_code == 200 else logging.INFO
        took_s = time.perf_counter() - g.start_s
        self.metrics.observe("grrm_request_seconds", took_s, route=route)
        response.headers[REQUEST_ID_HEADER] = request_id()
        log_answer(logger, level, route, response.status_code, took_s)
        return response

    def _answer_http_error(self, error: HTTPException) -> Response:
        status = error.code or 500
        message = error.description or error.name
        if status == 413:
            message = f"the body exceeds {self.flask.config['MAX_CONTENT_LENGTH']} bytes: send less per request"
        response = self.problem(status, message)
        if isinstance(error, MethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response
