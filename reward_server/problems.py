"""Failures that become error answers."""

from __future__ import annotations

from flask import Response

from grrm.rewards.protocol import Problem


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
