"""The Flask application: PaddleNLP's reward protocol at `/`, the group protocol at `/v1/score`, probes and counters."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from flask import Flask, Response, g, request
from pydantic import BaseModel
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import Candidate, Group
from grrm.judges.interface import Judge
from grrm.rewards.protocol import RowsAnswer, RowsRequest, ScoreAnswer, ScoreRequest, WireGroup, task_of

from .access import is_authorized
from .answer_cache import AnswerCache
from .bodies import parse, read_json_body, rows_limits, score_limits
from .hosting import HostedJudge
from .limits import check_group_sizes, check_rows, check_score_request, check_tasks
from .metrics import Metrics, render_judge
from .problems import JudgeFailure, RequestProblem, problem_response
from .rows import Extract, group_rows, rewards_by_row
from .service import JudgeService
from .settings import Settings

logger = logging.getLogger(__name__)
STOPPING = "the server is stopping and takes no more requests"
OPEN_ROUTES = frozenset({"/healthz"})
LENGTHS_DIFFER = "The length of response, tgt, and src should be equal."  # PaddleNLP's own words


def create_app(settings: Settings, judge: Judge | HostedJudge, token: str | None = None) -> Flask:
    """The WSGI application that hosts `judge`; with a `token`, every route but /healthz asks for it."""
    return RewardApp(settings, judge, token).flask


class RewardApp:
    """Routes and what they share. Texts of requests are never logged."""

    def __init__(self, settings: Settings, judge: Judge | HostedJudge, token: str | None) -> None:
        self.settings = settings
        self.hosted = judge if isinstance(judge, HostedJudge) else HostedJudge(judge)
        self.metrics = Metrics()
        self.service = JudgeService(
            self.hosted,
            self.metrics,
            wait_s=settings.judge_wait_s,
            max_groups=settings.max_groups,
            hung_after_s=settings.judge_deadline_s,
        )
        self.cache = AnswerCache(
            max_entries=settings.answer_cache_entries,
            max_bytes=settings.answer_cache_bytes,
            wait_s=settings.judge_wait_s,
        )
        self.extract: Extract = partial(extract_translation, extractor_type=settings.extractor_type)
        self.slots = threading.BoundedSemaphore(settings.max_in_flight)
        self.token = token
        self.is_stopping = False  # set from outside: scoring requests are refused from then on
        self.rows_limits, self.score_limits = rows_limits(settings), score_limits(settings)
        self.flask = Flask("grrm_reward_server", static_folder=None)
        self.flask.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
        self._add_routes()

    def _add_routes(self) -> None:
        routes: list[tuple[str, str, Callable[[], Response]]] = [
            ("POST", "/", self.post_rows),
            ("POST", "/v1/score", self.post_score),
            ("GET", "/healthz", self.get_healthz),
            ("GET", "/readyz", self.get_readyz),
            ("GET", "/metrics", self.get_metrics),
        ]
        for method, path, view in routes:
            self.flask.add_url_rule(path, view.__name__, view, methods=[method])
        self.flask.before_request(self._admit)
        self.flask.after_request(self._account)
        self.flask.register_error_handler(RequestProblem, _answer_problem)
        self.flask.register_error_handler(JudgeFailure, _answer_judge_failure)
        self.flask.register_error_handler(HTTPException, self._answer_http_error)
        self.flask.register_error_handler(Exception, _answer_defect)

    def post_rows(self) -> Response:
        """PaddleNLP's protocol. A failing judge is HTTP 200 with `error_code` 500 and zeros, as trainers expect."""
        rows = parse(
            RowsRequest, read_json_body(self.settings.max_body_bytes), self.rows_limits, invalid_json_status=422
        )
        if not len(rows.src) == len(rows.tgt) == len(rows.response):
            return _rows_failure(LENGTHS_DIFFER, len(rows.tgt))
        check_rows(rows, self.settings)
        row_groups = group_rows(rows, self.extract, self.settings.special_tokens)
        check_group_sizes([len(members) for members in row_groups.rows], self.settings)
        check_tasks(
            ((f"tgt[{rows[0]}]", group.task) for rows, group in zip(row_groups.rows, row_groups.groups, strict=True)),
            self.hosted.check_task,
        )
        if row_groups.n_unknown_tasks:
            logger.warning("%d of %d prompts do not tell their task", row_groups.n_unknown_tasks, len(row_groups.rows))
        try:
            with self._slot():
                verdicts = self.service.judge_groups(row_groups.groups)
        except JudgeFailure as failure:
            return _rows_failure(str(failure), len(rows.tgt))
        rewards, n_defaulted = rewards_by_row(
            row_groups, verdicts, scale=self.settings.score_scale_factor, default=self.settings.default_reward
        )
        self.metrics.add("grrm_rows_defaulted_total", n_defaulted)
        g.work = f"{len(verdicts)} groups, {len(rewards)} candidates, {n_defaulted} defaulted"
        return _json(RowsAnswer(error_code=0, error_msg="Success", score=rewards))

    def post_score(self) -> Response:
        """The group protocol; a repeated request_id is answered with the first answer."""
        body = read_json_body(self.settings.max_body_bytes)
        wire = parse(ScoreRequest, body, self.score_limits, invalid_json_status=400)
        check_score_request(wire, self.settings)
        tasks = ((f"groups[{index}]", task_of(group)) for index, group in enumerate(wire.groups))
        check_tasks(tasks, self.hosted.check_task)
        digest = hashlib.sha256(body).digest()
        with self._slot():
            answer, is_replay = self.cache.get_or_compute(wire.request_id, digest, partial(self._score, wire))
        self.metrics.add("grrm_replayed_answers_total", is_replay)
        n_candidates = sum(len(group.candidates) for group in wire.groups)
        g.work = f"{len(wire.groups)} groups, {n_candidates} candidates{', replayed' if is_replay else ''}"
        return Response(answer, mimetype="application/json")

    def get_healthz(self) -> Response:
        """Liveness: the process answers, and says which judge it hosts and what that has counted."""
        judge: dict[str, object] = {"name": self.hosted.judge.name, "model": self.hosted.model}
        if self.hosted.counters is not None:
            judge["counters"] = self.hosted.counters.values()
            judge["mean_agreement"] = self.hosted.counters.mean_agreement()
        return Response(json.dumps({"status": "alive", "judge": judge}), mimetype="application/json")

    def get_readyz(self) -> Response:
        """Readiness: the judge answers, and the server takes requests."""
        if self.is_stopping:
            return problem_response(503, STOPPING, retry_after_s=5)
        if not self.service.is_ready():
            return problem_response(503, "the judge does not answer yet", retry_after_s=5)
        return Response('{"status":"ready"}', mimetype="application/json")

    def get_metrics(self) -> Response:
        """Counters for Prometheus."""
        text = self.metrics.render() + render_judge(self.hosted.judge.name, self.hosted.model, self.hosted.counters)
        return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")

    def _score(self, wire: ScoreRequest) -> bytes:
        groups = [self._group(group) for group in wire.groups]
        answer = ScoreAnswer(request_id=wire.request_id, verdicts=self.service.judge_groups(groups))
        return answer.model_dump_json().encode()

    def _group(self, wire: WireGroup) -> Group:
        candidates = (
            Candidate(
                candidate.candidate_id,
                candidate.response,
                candidate.translation if candidate.has_translation_field else self.extract(candidate.response),
                candidate.n_tokens,
            )
            for candidate in wire.candidates
        )
        return Group(wire.group_id, task_of(wire), tuple(candidates))

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """One of the places for scoring requests; the threads beyond them stay free for the probes."""
        if self.is_stopping:
            raise RequestProblem(503, STOPPING, retry_after_s=5)
        if not self.slots.acquire(blocking=False):
            raise RequestProblem(503, "too many requests are being judged", retry_after_s=1)
        try:
            yield
        finally:
            self.slots.release()

    def _admit(self) -> Response | None:
        g.start_s = time.perf_counter()
        refusal = self.refusal(request.path, request.headers.get("Authorization"))
        if refusal is None:
            return None
        response = problem_response(*refusal)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def refusal(self, path: str, authorization: str | None) -> tuple[int, str] | None:
        """Status and message for a request without the token, None for one that may go on."""
        if self.token is None or path in OPEN_ROUTES or is_authorized(authorization, self.token):
            return None
        return 401, "this server asks for a token: send the header `Authorization: Bearer ...`"

    def _account(self, response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "other"
        self.metrics.add("grrm_requests_total", route=route, code=str(response.status_code))
        level = logging.DEBUG if request.method == "GET" and response.status_code == 200 else logging.INFO
        took_ms = (time.perf_counter() - g.start_s) * 1e3
        work = g.get("work", "")
        logger.log(level, "%s %s %d %.1f ms %s", request.method, route, response.status_code, took_ms, work)
        return response

    def _answer_http_error(self, error: HTTPException) -> Response:
        status = error.code or 500
        message = error.description or error.name
        if status == 413:
            message = f"the body exceeds {self.settings.max_body_bytes} bytes: send fewer groups per request"
        response = problem_response(status, message)
        if isinstance(error, MethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), mimetype="application/json")


def _rows_failure(message: str, n_rows: int) -> Response:
    return _json(RowsAnswer(error_code=500, error_msg=message, score=[0.0] * n_rows))


def _answer_problem(problem: RequestProblem) -> Response:
    return problem_response(problem.status, problem.message, field=problem.field, retry_after_s=problem.retry_after_s)


def _answer_judge_failure(failure: JudgeFailure) -> Response:
    return problem_response(500, str(failure), reference_id=failure.reference_id)


def _answer_defect(error: Exception) -> Response:
    reference_id = uuid.uuid4().hex[:12]
    logger.error("request to %s failed, reference %s", request.path, reference_id, exc_info=error)
    return problem_response(
        500, f"the server failed, its log has the details under {reference_id}", reference_id=reference_id
    )
