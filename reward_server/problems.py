"""Requests that cannot be served."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from grrm.rewards.messages import PartialAnswer

logger = logging.getLogger(__name__)


class RequestProblem(Exception):
    """The request cannot be served.

    `field` points to the part of it that is wrong, `code` is its kind in OpenAI's protocol, and the log has the details
    under `reference_id`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        code: str | None = None,
        reference_id: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.code = status, message, field, code
        self.reference_id, self.retry_after_s = reference_id, retry_after_s


class Unfinished(RequestProblem):
    """The request's deadline came first; `answer` has what was done."""

    def __init__(self, request_id: str, message: str, verdicts: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(504, message)
        problem = {"error_code": 504, "error_msg": message, "field": None, "reference_id": None}
        self.answer = PartialAnswer.model_validate(problem | {"request_id": request_id, "verdicts": list(verdicts)})


class JudgeFailure(RequestProblem):
    """The judge raised or broke its contract."""

    def __init__(self, reference_id: str) -> None:
        message = f"the judge failed, the server's log has the details under {reference_id}"
        super().__init__(500, message, reference_id=reference_id)


def defect(error: Exception) -> RequestProblem:
    """Log an error that is the server's own fault, and return it as a problem."""
    reference_id = uuid.uuid4().hex[:12]
    logger.error("a request failed, reference %s", reference_id, exc_info=error)
    message = f"the server failed, its log has the details under {reference_id}"
    return RequestProblem(500, message, code="server_error", reference_id=reference_id)
