"""The judge behind a gate: one call at a time, its answers checked, its failures named."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.judges.interface import Judge
from grrm.rewards.protocol import WireVerdict, wire_verdict

from .metrics import Metrics
from .problems import JudgeFailure, RequestProblem

logger = logging.getLogger(__name__)

CANARY = Group(
    "canary",
    TranslationTask("Guten Morgen, Anna!", "de", "en", "Good morning, Anna!"),
    (
        Candidate("0", "Good morning, Anna!", "Good morning, Anna!"),
        Candidate("1", "Good night.", "Good night."),
    ),
)


class JudgeService:
    """Gives every judge the same manners. Judges need not be thread-safe: callers take turns."""

    def __init__(self, judge: Judge, metrics: Metrics, *, wait_s: float) -> None:
        self._judge = judge
        self._metrics = metrics
        self._wait_s = wait_s
        self._turn = threading.Lock()
        self._has_answered = False

    def judge_groups(self, groups: Sequence[Group]) -> list[WireVerdict]:
        """One verdict per group, order kept; waits for its turn.

        Raises RequestProblem 503 when the judge is not free in time and JudgeFailure when it raises, answers another
        number of groups or of candidates, or ranks candidates that are not there.
        """
        return self._judge_in_turn(groups, self._wait_s) if groups else []

    def _judge_in_turn(self, groups: Sequence[Group], wait_s: float) -> list[WireVerdict]:
        if not self._turn.acquire(timeout=wait_s):
            raise RequestProblem(503, "the judge is busy", retry_after_s=5)
        try:
            return self._judge_checked(groups)
        finally:
            self._turn.release()

    def is_ready(self) -> bool:
        """True when the judge scored its last groups; one that has not yet, or failed, is given a known group.

        A judge that is at its first groups is not ready: waiting for it here would use up the threads of all probes.
        """
        if not self._has_answered:
            try:
                self._judge_in_turn([CANARY], wait_s=0.0)
            except (JudgeFailure, RequestProblem):
                return False
        return self._has_answered

    def _judge_checked(self, groups: Sequence[Group]) -> list[WireVerdict]:
        start_s = time.perf_counter()
        try:
            verdicts = self._judge.judge(groups)
            answers = [wire_verdict(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
        except Exception as error:
            reference_id = uuid.uuid4().hex[:12]
            self._has_answered = False
            self._metrics.add("grrm_judge_failures_total")
            logger.exception("judge %s failed on %d groups, reference %s", self._judge.name, len(groups), reference_id)
            raise JudgeFailure(reference_id) from error
        self._metrics.add("grrm_judge_seconds_total", time.perf_counter() - start_s)
        self._count(answers)
        return answers

    def _count(self, answers: Sequence[WireVerdict]) -> None:
        statuses = [candidate.status for answer in answers for candidate in answer.candidates]
        self._has_answered = self._has_answered or any(status.is_scored for status in statuses)
        self._metrics.add("grrm_groups_total", len(answers))
        for status in statuses:
            self._metrics.add("grrm_candidates_total", status=status.value)
