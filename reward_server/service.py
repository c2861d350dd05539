"""The judge behind a gate: its answers checked, its failures named and counted."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict, unscored
from grrm.judges.deadline import Abandoned, DeadlinePassed
from grrm.judges.gated import GatedJudge, with_faults, without_faulty
from grrm.rewards.group_filter import ConstantScoreAlarm
from grrm.rewards.protocol import check_verdict

from .hosting import HostedJudge
from .limits import overlong
from .metrics import Metrics
from .problems import JudgeFailure, RequestProblem
from .settings import Settings
from .turns import Turns

logger = logging.getLogger(__name__)
HUNG_TIMES, SHORTEST_HUNG_S = 10.0, 60.0
GROUPS_AT_A_TIME = 32
PROBE_S = 30.0  # what a model may take for one token; a large one on a CPU needs seconds
OUTAGES = frozenset({Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE})

CANARY = Group(
    "canary",
    TranslationTask("Guten Morgen, Anna!", "de", "en", context=()),
    (
        Candidate("0", "Good morning, Anna!", "Good morning, Anna!"),
        Candidate("1", "Good night.", "Good night."),
    ),
)


def _canary(hosted: HostedJudge) -> Group:
    """The known group with languages and a reference that the judge does not refuse."""
    (src_lang, trg_lang), reference = hosted.languages, hosted.reference
    return replace(CANARY, task=replace(CANARY.task, src_lang=src_lang, trg_lang=trg_lang, reference=reference))


def _never() -> bool:
    return False


class JudgeService:
    """Gives every judge the same manners. Those that are not thread-safe are asked in turns, which callers share."""

    def __init__(self, hosted: HostedJudge, settings: Settings, metrics: Metrics) -> None:
        self.hosted = hosted
        self._metrics = metrics
        self._wait_s, self._max_text_chars = settings.judge_wait_s, settings.max_text_chars
        self._turns = Turns(self._judge_checked, hosted.when_idle, settings.max_groups, self._waited)
        self._canary = _canary(hosted)
        self._has_answered = False
        self._hung_after_s = settings.named_judges().get(hosted.name, settings).longest_call_s
        self._calls_began_s: dict[object, float] = {}  # of the calls under way
        self._longest_call_s: float | None = None
        self._lock = threading.Lock()
        self._is_trying = threading.Lock()
        self._alarm = ConstantScoreAlarm(f"judge {hosted.name}")

    def judge_groups(
        self, groups: Sequence[Group], is_abandoned: Callable[[], bool] = _never, until: float = math.inf
    ) -> list[Verdict]:
        """One verdict per group, order kept; waits for its turn where the judge takes turns.

        `is_abandoned` says when nobody waits for the verdicts any more. Groups that are not done at `until`, on
        time.monotonic()'s clock, are unscored with JUDGE_TIMEOUT. Raises RequestProblem 503 when the judge is not
        free in time or the verdicts are abandoned, and JudgeFailure when it raises, answers another number of groups or
        of candidates, or ranks candidates that are not there.
        """
        if not groups:
            return []
        try:
            if self.hosted.takes_turns:
                return self._turns.judge(groups, self._wait_s, is_abandoned, until)
            self._waited(0.0)  # let in at once: what it waits for is inside the model
            return self._judge_checked(groups, until, is_abandoned)
        except DeadlinePassed:
            return unscored(groups, Status.JUDGE_TIMEOUT)
        except Abandoned as error:
            raise self._abandoned() from error

    def prompts_of(
        self, groups: Sequence[Group], is_abandoned: Callable[[], bool] = _never, until: float = math.inf
    ) -> list[list[str]]:
        """The prompts of each group, order kept; nothing is asked.

        Raises RequestProblem 504 when they are not made by `until` or within the judge's deadline, and 503 when they
        are abandoned.
        """
        prompts, deadline = list[list[str]](), self.hosted.deadline
        try:
            with deadline.within(min(self.hosted.deadline_s, until - time.monotonic()), is_abandoned):
                for group in groups:
                    shown = without_faulty(group, overlong(group, self._max_text_chars))
                    prompts.append(self.hosted.prompts_of(shown))
                    if not deadline.remaining_s():
                        raise DeadlinePassed
        except DeadlinePassed as error:
            message = f"the deadline came before the prompts of {len(groups)} groups were made"
            raise RequestProblem(504, message) from error
        except Abandoned as error:
            raise self._abandoned() from error
        return prompts

    def _abandoned(self) -> RequestProblem:
        self._metrics.add("grrm_abandoned_requests_total")
        return RequestProblem(503, "the client has gone", retry_after_s=1)

    @property
    def n_waiting(self) -> int:
        """Requests that the judge has not begun with."""
        return self._turns.n_waiting

    def is_ready(self) -> bool:
        """True when the judge, or the model behind it, answered last time; one that has not yet is tried out.

        A judge that is at its first groups is not ready: waiting for it here would use up the threads of all probes.
        Neither is one whose call has taken ten times as long as any before, but at least a minute, or `hung_after_s`.
        """
        if self._is_hung():
            return False
        if not self._has_answered:
            self._try_now()
        return self._has_answered

    def _try_now(self) -> None:
        if self.hosted.takes_turns:
            self._turns.try_now(self._try_out)
        elif self._is_trying.acquire(blocking=False):
            try:
                self._try_out()
            finally:
                self._is_trying.release()

    def _is_hung(self) -> bool:
        with self._lock:
            began_s, longest_s = min(self._calls_began_s.values(), default=None), self._longest_call_s
        if began_s is None:
            return False
        usual_s = math.inf if longest_s is None else max(HUNG_TIMES * longest_s, SHORTEST_HUNG_S)
        return time.perf_counter() - began_s > min(usual_s, self._hung_after_s)

    def _try_out(self) -> None:
        """A token from the model, or a verdict on a known group from a judge without one."""
        try:
            if self.hosted.answers is None:
                self._judge_checked([self._canary])
                return
            with self.hosted.deadline.within(PROBE_S):
                self._has_answered = self.hosted.answers()
        except JudgeFailure:
            return
        except Exception:  # whatever the model raises means "not ready", and a probe is no place to fail
            logger.exception("the model of judge %s does not answer", self.hosted.name)

    def _waited(self, seconds: float) -> None:
        self._metrics.observe("grrm_queue_wait_seconds", seconds, judge=self.hosted.name)

    def _judge_checked(
        self, groups: Sequence[Group], until: float = math.inf, is_abandoned: Callable[[], bool] = _never
    ) -> list[Verdict]:
        call, start_s = object(), time.perf_counter()
        self._metrics.add("grrm_judge_calls_total", not self._is_probe(groups))
        with self._lock:
            self._calls_began_s[call] = start_s
        try:
            seconds = min(self.hosted.deadline_s, max(until - time.monotonic(), 0.0))
            with self.hosted.deadline.within(seconds, is_abandoned):
                verdicts = self._verdicts(groups, until)
            for group, verdict in zip(groups, verdicts, strict=True):
                check_verdict(group, verdict)
        except Abandoned:
            raise
        except Exception as error:
            reference_id = uuid.uuid4().hex[:12]
            self._has_answered = False
            self._metrics.add("grrm_judge_failures_total")
            logger.exception("judge %s failed on %d groups, reference %s", self.hosted.name, len(groups), reference_id)
            raise JudgeFailure(reference_id) from error
        finally:
            self.hosted.when_idle(lambda: self._end(call))  # later where the model is still at what came too late
        took_s, is_cut_short = time.perf_counter() - start_s, time.monotonic() >= until
        with self._lock:
            if not is_cut_short:
                self._longest_call_s = max(self._longest_call_s or 0.0, took_s)
            is_probe = self._is_probe(groups)
            self._note_health(verdicts, is_probe=is_probe, is_cut_short=is_cut_short)
            if not is_probe:
                self._count(verdicts, took_s)
        return verdicts

    def _end(self, call: object) -> None:
        with self._lock:
            del self._calls_began_s[call]

    def _verdicts(self, groups: Sequence[Group], until: float) -> list[Verdict]:
        """The judge's verdicts; it is shown no candidate that is too long."""
        if self._is_probe(groups):
            judge = self.hosted.judge
            with nullcontext() if self.hosted.counters is None else self.hosted.counters.uncounted():
                return (judge.inner if isinstance(judge, GatedJudge) else judge).judge(groups)
        faults = [overlong(group, self._max_text_chars) for group in groups]
        shown = [without_faulty(group, of_group) for group, of_group in zip(groups, faults, strict=True)]
        verdicts = self._until(shown, until)
        return [
            with_faults(group, verdict, of_group)
            for group, verdict, of_group in zip(groups, verdicts, faults, strict=True)
        ]

    def _until(self, groups: Sequence[Group], until: float) -> list[Verdict]:
        """The judge's verdicts; one that looks at no clock is asked about a few groups at a time."""
        judge = self.hosted.judge
        if math.isinf(until) or self.hosted.answers is not None:
            try:
                return judge.judge(groups)
            except DeadlinePassed:  # while prompts were made, so that nothing was asked
                return unscored(groups, Status.JUDGE_TIMEOUT)
        done: list[Verdict] = []
        while len(done) < len(groups) and time.monotonic() < until:
            done += judge.judge(groups[len(done) : len(done) + GROUPS_AT_A_TIME])
        return done + unscored(groups[len(done) :], Status.JUDGE_TIMEOUT)

    def _is_probe(self, groups: Sequence[Group]) -> bool:
        return len(groups) == 1 and groups[0] is self._canary

    def _note_health(self, verdicts: Sequence[Verdict], *, is_probe: bool, is_cut_short: bool) -> None:
        """A refusal of a client's group may be given without the model, one of the known group is an answer."""
        statuses = {status for verdict in verdicts for status in verdict.statuses}
        if any(status.is_scored or status is Status.JUDGE_UNPARSABLE for status in statuses):
            self._has_answered = True
        elif is_probe:
            self._has_answered = not statuses & OUTAGES
        elif not is_cut_short and statuses & OUTAGES:
            self._has_answered = False

    def _count(self, verdicts: Sequence[Verdict], took_s: float) -> None:
        judge = self.hosted.name
        self._metrics.add("grrm_judge_seconds_total", took_s)
        self._metrics.observe("grrm_judge_call_seconds", took_s, judge=judge)
        self._metrics.observe("grrm_batch_groups", len(verdicts), judge=judge)
        for verdict in verdicts:
            if verdict.attempts:
                self._metrics.observe("grrm_reply_tokens", verdict.tokens, judge=judge)
        outcomes = [pair for verdict in verdicts for pair in zip(verdict.statuses, verdict.scores, strict=True)]
        scores = [score for status, score in outcomes if status is Status.SCORED]
        if self._alarm.watch(score for score in scores if score is not None):
            self._metrics.add("grrm_constant_score_alarms_total")
        self._metrics.add("grrm_groups_total", len(verdicts))
        for status, count in Counter(status for status, _ in outcomes).items():
            self._metrics.add("grrm_candidates_total", count, status=status.value)
