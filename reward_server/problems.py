"""Failures that become error answers."""

from __future__ import annotations

import logging
import uuid

from flask import Response, request

from grrm.rewards.protocol import PartialAnswer, Problem

logger = logging.getLogger(__name__)


class RequestProblem(Exception):
    """The request cannot be served; `field` points to the part of it that is wrong."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class Unfinished(Exception):
    """The request's deadline came first; `answer` has what was done."""

    def __init__(self, answer: PartialAnswer) -> None:
        super().__init__(answer.error_msg)
        self.answer = answer


class JudgeFailure(Exception):
    """The judge raised or broke its contract; the details are in the log under `reference_id`."""

    def __init__(self, reference_id: str) -> None:
        super().__init__(f"the judge failed, the server's log has the details under {reference_id}")
        self.reference_id = reference_id


def problem_response(
    status: int,
    message: str,
    *,
    field: str | None = None,
    reference_id: str | None = None,
    retry_after_s: int | None = None,
) -> Response:
    """An error answer: a Problem as JSON, with Retry-After where it makes sense to come back."""
    body = Problem(error_code=status, error_msg=message, field=field, reference_id=reference_id)
    response = Response(body.model_dump_json(), status=status, mimetype="application/json")
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def answer_problem(problem: RequestProblem) -> Response:
    """The answer to a request that cannot be served."""
    return problem_response(problem.status, problem.message, field=problem.field, retry_after_s=problem.retry_after_s)


def answer_unfinished(unfinished: Unfinished) -> Response:
    """The answer at a request's deadline: what was done."""
    return Response(unfinished.answer.model_dump_json(), status=504, mimetype="application/json")


def answer_judge_failure(failure: JudgeFailure) -> Response:
    """The answer to a request that the judge failed on."""
    return problem_response(500, str(failure), reference_id=failure.reference_id)


def answer_defect(error: Exception) -> Response:
    """The answer where the server itself is at fault; the log has the details."""
    reference_id = uuid.uuid4().hex[:12]
    logger.error("request to %s failed, reference %s", request.path, reference_id, exc_info=error)
    return problem_response(
        500, f"the server failed, its log has the details under {reference_id}", reference_id=reference_id
    )


def render_problem(status: int, message: str) -> bytes:
    """A refusal as the JSON of its body."""
    return Problem(error_code=status, error_msg=message).model_dump_json().encode()
