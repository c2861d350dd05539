"""COMET, CometKiwi, MetricX and BLEURT of whole files, by the processes that are judges too."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.errors import UserError
from grrm.judges.learned_metric import ROWS_PER_REQUEST, start_error
from grrm.judges.metric_worker import MetricWorker, Row
from grrm.rewards.worker import WorkerFailure


@dataclass(slots=True)
class NeuralScorer:
    """One metric in the environment `environment` (a venv's folder), with `model`; runs at most `deadline_s` seconds.

    Raises UserError, when built, if there is no such environment, with the command that creates it, or no model.
    """

    name: str
    environment: Path
    model: str | None = None
    deadline_s: float = 7200.0
    batch_size: int = 16

    def __post_init__(self) -> None:
        self._worker()

    def score(self, sources: Sequence[str], hypotheses: Sequence[str | None], references: Sequence[str]) -> list[float]:
        """One number of the metric per row, order kept; a missing translation is scored as an empty one.

        Raises UserError when the metric fails, does not end in time, or does not answer with one finite number per row.
        """
        worker = self._worker()
        uses_reference = worker.kind.needs_reference is not False
        rows: list[Row] = [
            (source, text or "", reference if uses_reference else None)
            for source, text, reference in zip(sources, hypotheses, references, strict=True)
        ]
        try:
            scores = self._scores(worker, rows)
        except WorkerFailure as failure:
            if failure.is_late:
                raise UserError(
                    f"{worker.kind.title} did not end within {self.deadline_s:g} s: allow it more time or fewer rows"
                ) from None
            raise start_error(worker, failure) from failure
        finally:
            worker.close()
        if not all(map(math.isfinite, scores)):
            raise UserError(
                f"{worker.kind.title} gave {sum(map(math.isfinite, scores))} finite scores for {len(rows)} rows: leave "
                "it out, or use another model"
            )
        return scores

    def _worker(self) -> MetricWorker:
        return MetricWorker(self.name, self.environment, self.model, self.batch_size)

    def _scores(self, worker: MetricWorker, rows: Sequence[Row]) -> list[float]:
        until = time.monotonic() + self.deadline_s
        scores: list[float] = []
        for start in range(0, len(rows), ROWS_PER_REQUEST):
            scores += worker.score(rows[start : start + ROWS_PER_REQUEST], max(until - time.monotonic(), 0.0))
        return scores
