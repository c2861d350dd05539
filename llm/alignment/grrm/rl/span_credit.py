"""From the error spans of a verdict to a number per token of each response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Verdict
from grrm.gqm.spans import Spans, check_spans
from grrm.rl.records import Rolled

Locate = Callable[[Sequence[int], str], list[tuple[int, int]]]  # tokens and their text to [start, end) of each in it


def with_marks(group: Group, verdict: Verdict) -> Verdict:
    """The verdict with the errors that people marked in place of the judge's, for translations that they have seen."""
    by_people = dict(group.task.marked)
    spans = verdict.spans or (None,) * len(group.candidates)
    pairs = zip(group.candidates, spans, strict=True)
    merged = tuple(by_people.get(candidate.translation or "", own) for candidate, own in pairs)
    return verdict if merged == spans else replace(verdict, spans=merged)


@dataclass(slots=True)
class SpanCredit:
    """Gives every token the weight of the most severe error span that it overlaps, by `weights` of severities.

    `locate` says where the sampled tokens are in the response. The translation is the last occurrence of its text in
    the response, whatever extracted it. `judge` is named where no verdict has spans.
    """

    locate: Locate
    weights: Mapping[str, float]
    judge: str
    _has_spans: bool = field(init=False, default=False)

    def __call__(self, groups: Sequence[Rolled], verdicts: Sequence[Verdict]) -> list[list[NDArray[np.float64]]]:
        """Severities per token (length T) of every response of every group; 0 where no error is marked.

        Raises UserError where candidates have scores and none has ever had spans, and ValueError for spans outside
        their translation.
        """
        self._has_spans = self._has_spans or any(verdict.spans for verdict in verdicts)
        if not self._has_spans and any(score is not None for verdict in verdicts for score in verdict.scores):
            raise UserError(
                f"the judge {self.judge!r} marks no error spans, which advantage_rule gives credit for; use the judge "
                "spans, one of your own that marks them, or another rule"
            )
        return [self._of_group(rolled, verdict) for rolled, verdict in zip(groups, verdicts, strict=True)]

    def _of_group(self, rolled: Rolled, verdict: Verdict) -> list[NDArray[np.float64]]:
        candidates = rolled.group.candidates
        spans = verdict.spans or (None,) * len(candidates)
        check_spans(spans, [candidate.translation for candidate in candidates])
        return [self._of_response(*row) for row in zip(rolled.token_ids, candidates, spans, strict=True)]

    def _of_response(self, ids: Sequence[int], candidate: Candidate, spans: Spans | None) -> NDArray[np.float64]:
        severities_T = np.zeros(len(ids))
        if not spans:
            return severities_T
        offset = candidate.response.rindex(candidate.translation or "")
        ranges = self.locate(ids, candidate.response)
        starts_T, ends_T = (np.array(column) for column in zip(*ranges, strict=True))
        for span in spans:
            is_inside_T = (starts_T < offset + span.end) & (offset + span.start < ends_T) & (starts_T < ends_T)
            severities_T[is_inside_T] = np.maximum(severities_T[is_inside_T], self.weights[span.severity])
        return severities_T
