"""A learned metric as a judge: COMET, CometKiwi, MetricX, BLEURT; scores each translation independently."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from grrm.errors import UserError
from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.dedup import Outcome, dedup_texts, expand_to_duplicates, ranking_of
from grrm.judges.metric_worker import METRIC_KINDS, MetricWorker, Row, environment_of
from grrm.judges.spec import JudgeOptions, Process, Reference, judge
from grrm.rewards.worker import WorkerFailure

logger = logging.getLogger(__name__)
ROWS_PER_REQUEST = 256  # what has been answered before a deadline counts


class LearnedMetricOptions(JudgeOptions):
    """Options of a learned metric.

    `environment` is the folder of the environment that `grrm scorer install` made, "" for `.venv-NAME` here;
    `batch_size` is the number of texts per batch.
    """

    environment: str = ""
    batch_size: Annotated[int, Field(ge=1)] = 16

    def open(self, process: Process) -> LearnedMetricJudge:
        """Load the metric's model, which may take `process.seconds` as well.

        Raises UserError for a metric without an environment or a model, and for one that cannot be loaded.
        """
        environment = Path(self.environment) if self.environment else environment_of(process.name)
        worker = MetricWorker(process.name, environment, process.model, self.batch_size)
        try:
            worker.start(process.seconds)
        except WorkerFailure as failure:
            raise start_error(worker, failure) from failure
        return LearnedMetricJudge(worker, process.name, process.seconds)


_REFERENCE: dict[bool | None, Reference] = {True: "needed", False: "unread", None: "optional"}
for _name, _kind in METRIC_KINDS.items():
    judge(
        _name,
        help=f"{_kind.title}, a learned metric",
        needs="metric",
        reference=_REFERENCE[_kind.needs_reference],
    )(LearnedMetricOptions)


@dataclass
class LearnedMetricJudge:
    """Scores each distinct translation by the metric of `worker`, scaled to 0 to 10 and clipped.

    A call takes at most `deadline_s` seconds: translations without a value by then are JUDGE_TIMEOUT, those on which
    the metric's process crashed or returned an error JUDGE_UNREACHABLE. A non-finite value is JUDGE_UNPARSABLE, a group
    without the reference that the metric needs MISSING_REFERENCE.
    """

    worker: MetricWorker
    name: str
    deadline_s: float

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        needs_reference = self.worker.kind.needs_reference
        plans = [dedup_texts(group) for group in groups]
        rows: dict[Row, Outcome | None] = {}
        of_group: list[list[Row] | None] = []
        for group, plan in zip(groups, plans, strict=True):
            reference = group.task.reference if group.task.reference and group.task.reference.strip() else None
            if needs_reference and reference is None:
                of_group.append(None)
                continue
            shown = reference if needs_reference is not False else None
            of_group.append([(group.task.source, text, shown) for text in plan.texts])
            rows |= dict.fromkeys(of_group[-1] or ())
        outcome_of = self._scored(list(rows))
        verdicts = []
        for group, plan, own in zip(groups, plans, of_group, strict=True):
            missing: list[Outcome] = [Status.MISSING_REFERENCE] * len(plan.texts)
            outcomes = missing if own is None else [outcome_of[row] for row in own]
            verdicts.append(expand_to_duplicates(group, plan, outcomes, tiers=ranking_of(outcomes)))
        return verdicts

    def _scored(self, rows: Sequence[Row]) -> dict[Row, Outcome]:
        """A score, or why there is none, for each row."""
        until = time.monotonic() + self.deadline_s
        outcomes: dict[Row, Outcome] = {}
        for start in range(0, len(rows), ROWS_PER_REQUEST):
            part = rows[start : start + ROWS_PER_REQUEST]
            seconds = until - time.monotonic()
            if seconds <= 0:
                outcomes |= dict.fromkeys(part, Status.JUDGE_TIMEOUT)
                continue
            try:
                numbers = self.worker.score(part, seconds)
                outcomes |= {row: self._outcome(number) for row, number in zip(part, numbers, strict=True)}
            except WorkerFailure as failure:
                logger.warning("%s gave no scores for %d texts: %s", self.worker.kind.title, len(part), failure)
                status = Status.JUDGE_TIMEOUT if failure.is_late else Status.JUDGE_UNREACHABLE
                outcomes |= dict.fromkeys(part, status)
        return outcomes

    def _outcome(self, number: float) -> Outcome:
        if not math.isfinite(number):
            return Status.JUDGE_UNPARSABLE
        return min(MAX_SCORE, max(0.0, self.worker.kind.scale(number)))


def start_error(worker: MetricWorker, failure: WorkerFailure) -> UserError:
    """The error message for a metric that cannot be used."""
    title, remedy = worker.kind.title, worker.kind.model_remedy
    if "ModuleNotFoundError" in str(failure):
        return UserError(f"{title} is not whole ({failure}): {worker.how_to_install}")
    if failure.is_late:
        return UserError(f"{title} is not there in time ({failure}): allow it more, or use a smaller model")
    return UserError(f"{title} failed with model '{worker.model}' ({failure}): correct that, or {remedy}")
