"""The judge behind a gate: its answers checked, its failures named and counted."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.constant_scores import ConstantScoreAlarm
from grrm.rewards.protocol import WireVerdict, wire_verdict

from .hosting import HostedJudge
from .metrics import Metrics
from .problems import JudgeFailure
from .turns import Turns

logger = logging.getLogger(__name__)
HUNG_TIMES, SHORTEST_HUNG_S = 10.0, 60.0
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

    def __init__(
        self, hosted: HostedJudge, metrics: Metrics, *, wait_s: float, max_groups: int, hung_after_s: float
    ) -> None:
        self._hosted = hosted
        self._metrics = metrics
        self._wait_s = wait_s
        self._turns = Turns(self._judge_checked, hosted.when_idle, max_groups)
        self._has_answered = False
        self._hung_after_s = hung_after_s
        self._call_began_s: float | None = None
        self._longest_call_s: float | None = None
        self._alarm = ConstantScoreAlarm(f"judge {hosted.judge.name}")

    def judge_groups(self, groups: Sequence[Group]) -> list[WireVerdict]:
        """One verdict per group, order kept; waits for its turn.

        Raises RequestProblem 503 when the judge is not free in time and JudgeFailure when it raises, answers another
        number of groups or of candidates, or ranks candidates that are not there.
        """
        return self._turns.judge(groups, self._wait_s) if groups else []

    def is_ready(self) -> bool:
        """True when the judge, or the model behind it, answered last time; one that has not yet is tried out.

        A judge that is at its first groups is not ready: waiting for it here would use up the threads of all probes.
        Neither is one whose call has taken ten times as long as any before, but at least a minute, or `hung_after_s`.
        """
        if self._is_hung():
            return False
        if not self._has_answered:
            self._turns.try_now(self._try_out)
        return self._has_answered

    def _is_hung(self) -> bool:
        began_s, longest_s = self._call_began_s, self._longest_call_s
        if began_s is None:
            return False
        usual_s = math.inf if longest_s is None else max(HUNG_TIMES * longest_s, SHORTEST_HUNG_S)
        return time.perf_counter() - began_s > min(usual_s, self._hung_after_s)

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
        start_s = self._call_began_s = time.perf_counter()
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
        finally:
            self._call_began_s = None
        took_s = time.perf_counter() - start_s
        self._longest_call_s = max(self._longest_call_s or 0.0, took_s)
        self._metrics.add("grrm_judge_seconds_total", took_s)
        self._count(answers)
        return answers

    def _count(self, answers: Sequence[WireVerdict]) -> None:
        statuses = Counter(candidate.status for answer in answers for candidate in answer.candidates)
        if any(status.is_scored or status is Status.JUDGE_UNPARSABLE for status in statuses):
            self._has_answered = True
        elif any(status in (Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE) for status in statuses):
            self._has_answered = False
        scores = [c.score for answer in answers for c in answer.candidates if c.status is Status.SCORED]
        if self._alarm.watch(score for score in scores if score is not None):
            self._metrics.add("grrm_constant_score_alarms_total")
        self._metrics.add("grrm_groups_total", len(answers))
        for status, count in statuses.items():
            self._metrics.add("grrm_candidates_total", count, status=status.value)
