"""The judge behind a gate: its answers checked, its failures named and counted."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.protocol import WireVerdict, wire_verdict

from .hosting import HostedJudge
from .metrics import Metrics
from .problems import JudgeFailure
from .turns import Turns

logger = logging.getLogger(__name__)
PROBE_S = 30.0  # what a model may take for one token; a large one on a CPU needs seconds

CANARY = Group(
    "canary",
    TranslationTask("Guten Morgen, Anna!", "de", "en", "Good morning, Anna!"),
    (
        Candidate("0", "Good morning, Anna!", "Good morning, Anna!"),
        Candidate("1", "Good night.", "Good night."),
    ),
)


class JudgeService:
    """Gives every judge the same manners. Judges need not be thread-safe: callers take turns, and share them."""

    def __init__(self, hosted: HostedJudge, metrics: Metrics, *, wait_s: float, max_groups: int) -> None:
        self._hosted = hosted
        self._metrics = metrics
        self._wait_s = wait_s
        self._turns = Turns(self._judge_checked, hosted.when_idle, max_groups)
        self._has_answered = False

    def judge_groups(self, groups: Sequence[Group]) -> list[WireVerdict]:
        """One verdict per group, order kept; waits for its turn.

        Raises RequestProblem 503 when the judge is not free in time and JudgeFailure when it raises, answers another
        number of groups or of candidates, or ranks candidates that are not there.
        """
        return self._turns.judge(groups, self._wait_s) if groups else []

    def is_ready(self) -> bool:
        """True when the judge, or the model behind it, answered last time; one that has not yet is tried out.

        A judge that is at its first groups is not ready: waiting for it here would use up the threads of all probes.
        """
        if not self._has_answered:
            self._turns.try_now(self._try_out)
        return self._has_answered

    def _try_out(self) -> None:
        """A token from the model, or a verdict on a known group from a judge without one."""
        try:
            if self._hosted.answers is None:
                self._judge_checked([CANARY])
                return
            with self._hosted.deadline.within(PROBE_S):
                self._has_answered = self._hosted.answers()
        except JudgeFailure:
            return
        except Exception:  # whatever the model raises means "not ready", and a probe is no place to fail
            logger.exception("the model of judge %s does not answer", self._hosted.judge.name)

    def _judge_checked(self, groups: Sequence[Group]) -> list[WireVerdict]:
        start_s = time.perf_counter()
        judge = self._hosted.judge
        self._metrics.add("grrm_judge_calls_total")
        try:
            with self._hosted.deadline.within(self._hosted.deadline_s):
                verdicts = judge.judge(groups)
            answers = [wire_verdict(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
        except Exception as error:
            reference_id = uuid.uuid4().hex[:12]
            self._has_answered = False
            self._metrics.add("grrm_judge_failures_total")
            logger.exception("judge %s failed on %d groups, reference %s", judge.name, len(groups), reference_id)
            raise JudgeFailure(reference_id) from error
        self._metrics.add("grrm_judge_seconds_total", time.perf_counter() - start_s)
        self._count(answers)
        return answers

    def _count(self, answers: Sequence[WireVerdict]) -> None:
        statuses = Counter(candidate.status for answer in answers for candidate in answer.candidates)
        if any(status.is_scored or status is Status.JUDGE_UNPARSABLE for status in statuses):
            self._has_answered = True
        elif any(status in (Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE) for status in statuses):
            self._has_answered = False
        self._metrics.add("grrm_groups_total", len(answers))
        for status, count in statuses.items():
            self._metrics.add("grrm_candidates_total", count, status=status.value)
