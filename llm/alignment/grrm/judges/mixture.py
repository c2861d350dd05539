"""Several judges as one: a mixture, whose parts run in parallel and are mixed per group, and a judge per route."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grrm.gqm.groups import Group, PartVerdict, Status, TranslationTask, Verdict, unscored
from grrm.gqm.spans import joined_spans
from grrm.judges.deadline import CallThread, Deadline, DeadlinePassed
from grrm.judges.interface import Judge
from grrm.rewards.client import RewardServerError
from grrm.rewards.mixing import counted, failed, mix

logger = logging.getLogger(__name__)
REFUSALS = (301, 302, 307, 308, 401, 403, 404, 405, 421)  # of a token or an address, which the next request has too
OWN_SHARE = 0.95  # of a deadline: a client's own ends first, so that what has been answered by then counts
Answer = tuple[Verdict, PartVerdict]  # a judge's verdict, and the same as a part of the mixture's verdict


@dataclass
class Part:
    """A judge of a mixture.

    With `deadline_s` it runs in its own thread, in parallel with the others, and on a timeout its groups are
    JUDGE_TIMEOUT; without, it runs in the caller's thread. If a reward server does not respond they are
    JUDGE_UNREACHABLE, unless it refuses the token or the address, which is an error.

    `deadline` tells the judge in its thread when its time ends, a little before `deadline_s`: what it has then counts.

    `fallback` judges the groups on which the judge failed, and may have one too. Without one, or if it fails too, the
    group is scored without this part, unless the part is `required`: then candidates it did not score have no score. Of
    two that fail the one with more scores counts, the fallback where they have as many.
    """

    judge: Judge
    name: str
    weight: float = 1.0
    normalise: str = "none"
    deadline_s: float | None = None
    required: bool = False
    fallback: Part | None = None
    deadline: Deadline = field(default_factory=Deadline)
    _thread: CallThread[list[Verdict]] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            self._thread = CallThread(f"judge {self.name}")

    def begin(self, groups: Sequence[Group], remaining_s: Callable[[], float]) -> Callable[[], list[Answer]]:
        """Start judging the groups; the returned function waits for the answers, one per group in order.

        It waits for `remaining_s()` seconds at most, and asks nobody after them.
        """
        answers = self._begin(groups, remaining_s())

        def wait() -> list[Answer]:
            verdicts = answers()
            failures = [i for i, verdict in enumerate(verdicts) if failed(verdict.statuses)]
            replaced: Mapping[int, Verdict] = {}
            if self.fallback is not None and failures:
                again = self.fallback.begin([groups[i] for i in failures], remaining_s)()
                is_late = not remaining_s()  # then the group is to be judged again as a whole
                both = zip(failures, (verdict for verdict, _ in again), strict=True)
                replaced = {i: verdict for i, verdict in both if is_late or not _is_worse(verdict, verdicts[i])}
            answered = [(replaced.get(i, verdict), i in replaced) for i, verdict in enumerate(verdicts)]
            return [(verdict, self._part(verdict, fell_back)) for verdict, fell_back in answered]

        return wait

    def _begin(self, groups: Sequence[Group], seconds: float) -> Callable[[], list[Verdict]]:
        if not seconds:
            return lambda: unscored(groups, Status.JUDGE_TIMEOUT)
        if self._thread is None or self.deadline_s is None:
            return lambda: self._ask(groups)
        until = time.monotonic() + min(OWN_SHARE * self.deadline_s, seconds)

        def ask() -> list[Verdict]:
            with self.deadline.within(until - time.monotonic()):
                return self._ask(groups)

        wait = self._thread.begin(ask, min(self.deadline_s, seconds))

        def answers() -> list[Verdict]:
            try:
                return wait()
            except DeadlinePassed:
                return unscored(groups, Status.JUDGE_TIMEOUT)

        return answers

    def _ask(self, groups: Sequence[Group]) -> list[Verdict]:
        try:
            verdicts = self.judge.judge(groups)
        except RewardServerError as error:
            if error.status in REFUSALS:
                raise
            logger.warning("judge %s gave no verdict: %s", self.name, error)
            return unscored(groups, Status.JUDGE_UNREACHABLE)
        if len(verdicts) != len(groups):
            raise ValueError(f"judge {self.name!r} answered {len(verdicts)} verdicts for {len(groups)} groups")
        return verdicts

    def _part(self, verdict: Verdict, fell_back: bool) -> PartVerdict:
        part = PartVerdict(
            self.name,
            self.weight,
            self.normalise,
            verdict.statuses,
            verdict.scores,
            verdict.analysis,
            fell_back=fell_back,
            attempts=verdict.attempts,
            rejections=verdict.rejections,
        )
        return counted(part, required=self.required)


def _is_worse(fallback: Verdict, own: Verdict) -> bool:
    """True if the fallback failed too, and on more candidates."""
    n_scored = [sum(status.is_scored for status in verdict.statuses) for verdict in (fallback, own)]
    return failed(fallback.statuses) and n_scored[0] < n_scored[1]


@dataclass
class MixtureJudge:
    """`parts` as one judge: see `rewards.mixing.mix`. A verdict's `parts` hold their individual verdicts.

    Each call ends within `remaining_s()` seconds, as far as its parts have deadlines. A group that a part has not
    judged by then is JUDGE_TIMEOUT as a whole: without the part it would have another score.
    """

    parts: Sequence[Part]
    name: str = "mixture"
    remaining_s: Callable[[], float] = lambda: math.inf
    _failures: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Raises what a judge raises that is no failure to answer."""
        return self.begin(groups)()

    def begin(self, groups: Sequence[Group]) -> Callable[[], list[Verdict]]:
        """Start the judges that have a deadline; the returned function runs the others and waits for all verdicts."""
        waiting = [(part, part.begin(groups, self.remaining_s)) for part in self.parts]

        def wait() -> list[Verdict]:
            inline_first = sorted(waiting, key=lambda entry: entry[0].deadline_s is not None)
            by_name = {part.name: answers() for part, answers in inline_first}
            columns = [by_name[part.name] for part in self.parts]
            for part, column in zip(self.parts, columns, strict=True):
                self._log_failures(part.name, [verdict for _, verdict in column])
            verdicts = [_mixed(answers) for answers in zip(*columns, strict=True)]
            return verdicts if self.remaining_s() else [_timed_out(verdict) for verdict in verdicts]

        return wait

    def _log_failures(self, name: str, column: Sequence[PartVerdict]) -> None:
        """Log one line when a part starts to fail, or fails in another way, and one when it recovers."""
        bad = [part for part in column if part.fell_back or failed(part.statuses)]
        causes = Counter(status.value for part in bad for status in part.statuses if failed([status]))
        failure = ", ".join(sorted(causes)) or ("its fallback answers" if bad else "")
        if failure != self._failures.get(name, ""):
            self._failures[name] = failure
            if failure:
                logger.warning("judge %s failed on %d of %d groups (%s)", name, len(bad), len(column), failure)
            else:
                logger.warning("judge %s answers again", name)


def _mixed(answers: Sequence[Answer]) -> Verdict:
    own = [verdict for verdict, _ in answers]
    return replace(
        mix([part for _, part in answers]),
        tokens=sum(verdict.tokens for verdict in own),
        spans=joined_spans([verdict.spans for verdict in own], len(own[0].statuses)),
    )


def _timed_out(verdict: Verdict) -> Verdict:
    """`verdict`, or JUDGE_TIMEOUT throughout where one of its parts was not done, or its server not in time."""
    is_done = all({Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE}.isdisjoint(part.statuses) for part in verdict.parts)
    return verdict if is_done else Verdict.unscored(len(verdict.statuses), Status.JUDGE_TIMEOUT)


@dataclass
class RoutedJudge:
    """Each group is judged by the judge of its route, by name in `judges`; `route_of` names a task's route.

    Mixtures are asked first, those of their judges that have a deadline at the same time.
    """

    judges: Mapping[str, Judge]
    route_of: Callable[[TranslationTask], str]
    name: str = "routes"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Raises KeyError for a route without a judge."""
        by_route: dict[str, list[int]] = {}
        for index, group in enumerate(groups):
            by_route.setdefault(self.route_of(group.task), []).append(index)
        waiting = {route: _started(self.judges[route], [groups[i] for i in at]) for route, at in by_route.items()}
        verdicts: dict[int, Verdict] = {}
        for route, at in by_route.items():
            verdicts |= dict(zip(at, waiting[route](), strict=True))
        return [verdicts[index] for index in range(len(groups))]


def _started(judge: Judge, groups: Sequence[Group]) -> Callable[[], list[Verdict]]:
    return judge.begin(groups) if isinstance(judge, MixtureJudge) else lambda: judge.judge(groups)
