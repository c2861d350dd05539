"""Failing together: an error on one rank becomes the same error on every rank, never a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grrm.errors import UserError
from grrm.parallel.data_ranks import DataRanks

T = TypeVar("T")


class CollectiveFailure(UserError):
    """At least one rank failed at a named stage; every rank raises this with the same message."""


def run_together(
    stage: str,
    work: Callable[[], T],
    ranks: DataRanks,
    expected: tuple[type[Exception], ...],
    failure: type[Exception] = CollectiveFailure,
) -> T:
    """Run `work` on every rank; when it raises one of `expected` anywhere, raise one `failure` on every rank.

    Every rank's message is the same: the stage, the first rank that failed and what it said.
    The outcome is exchanged before anyone raises, so no rank is left waiting in a later collective. An exception
    outside `expected` is a defect: it propagates at once and the launcher ends the job.
    """
    result: T | None = None
    problem: str | None = None
    cause: Exception | None = None
    try:
        result = work()
    except expected as error:
        problem, cause = str(error), error
    problems = ranks.gather(problem)
    failed = [(rank, message) for rank, message in enumerate(problems) if message is not None]
    if failed:
        rank, message = failed[0]
        others = f" ({len(failed)} of {ranks.size} ranks failed)" if ranks.size > 1 else ""
        raise failure(f"{stage} failed on rank {rank}{others}: {message}") from cause
    return result  # type: ignore[return-value]
