"""Dynamic sampling: which groups carry a signal, in rewards or error spans, and why the others do not.

Equality is decided on rewards before length penalties and exactly, never through a float standard deviation: a
length penalty would make a group of equal scores look informative, and 0.1 + 0.1 + 0.1 over 3 need not be 0.1.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import REMEDIES
from grrm.rewards.shaping import ShapedRewards


class GroupSignal(str, Enum):
    """Ability of a group to move the policy, and the cause of its absence."""

    INFORMATIVE = "informative"  # at least two different rewards before length penalties, or error spans to learn from
    EQUAL_SCORES = "equal_scores"  # different translations, one score
    IDENTICAL = "identical"  # one distinct translation
    ALL_FAILED = "all_failed"  # nothing but the fixed penalty
    TOO_FEW = "too_few"  # fewer than two rows have a reward at all
    DROPPED = "dropped"  # taken out by the failure policy


def classify_group(shaped: ShapedRewards) -> GroupSignal:
    """The group's signal; a fixed penalty beside a different score counts as a signal (it teaches the format)."""
    if shaped.dropped:
        return GroupSignal.DROPPED
    values = [value for value in shaped.before_penalties if value is not None]
    if len(set(values)) > 1 or shaped.has_errors:
        return GroupSignal.INFORMATIVE
    n_distinct_scored = shaped.statuses.count(Status.SCORED)
    if Status.SINGLE_CANDIDATE in shaped.statuses or (n_distinct_scored == 1 and Status.DUPLICATE in shaped.statuses):
        return GroupSignal.IDENTICAL
    if len(values) < 2:
        return GroupSignal.TOO_FEW
    return GroupSignal.EQUAL_SCORES if n_distinct_scored else GroupSignal.ALL_FAILED


def informative_groups(groups: Sequence[ShapedRewards], rollout_n: int) -> list[int]:
    """Positions of the groups worth training on, order kept.

    Raises ValueError on a group that does not have `rollout_n` members: a torn group is a defect, not a filter case.
    """
    for position, shaped in enumerate(groups):
        if len(shaped.rewards) != rollout_n:
            raise ValueError(f"group {position} has {len(shaped.rewards)} members instead of {rollout_n}")
    return [i for i, shaped in enumerate(groups) if classify_group(shaped) is GroupSignal.INFORMATIVE]


def zero_variance_metrics(groups: Sequence[ShapedRewards]) -> dict[str, float]:
    """`frac_zero_variance` and its split by cause, as fractions of all groups; they add up. All 0 without groups."""
    causes = Counter(classify_group(shaped) for shaped in groups)
    n_groups = max(len(groups), 1)
    silent = [signal for signal in GroupSignal if signal is not GroupSignal.INFORMATIVE]
    metrics = {f"frac_zero_variance/{signal.value}": causes[signal] / n_groups for signal in silent}
    return {"frac_zero_variance": sum(causes[signal] for signal in silent) / n_groups, **metrics}


def why_silent(groups: Sequence[ShapedRewards]) -> str:
    """The causes for which groups carry no signal, with their numbers, and a remedy, for a message."""
    signals = [classify_group(shaped) for shaped in groups]
    by_number = Counter(signal for signal in signals if signal is not GroupSignal.INFORMATIVE).most_common()
    remedy = "raise max_gen_batches or global_gen_batch_size, or use prompts on which the samples differ"
    if not by_number:
        return f": {remedy}"
    if (usual := by_number[0][0]) is not GroupSignal.EQUAL_SCORES:
        alike = [shaped for shaped, signal in zip(groups, signals, strict=True) if signal is usual]
        statuses = Counter(status for shaped in alike for status in shaped.statuses if not status.is_scored)
        for status, n in statuses.most_common(1):
            remedy = f"{n} samples of the {usual.value} groups are {status.value}: {REMEDIES[status]}"
    return f" (the others: {', '.join(f'{n} {signal.value}' for signal, n in by_number)}): {remedy}"


logger = logging.getLogger(__name__)
FIRST_ALARM = 64  # scores in a row; the next alarm comes at twice as many, and so on


class ConstantScoreAlarm:
    """Warns when a judge gives one and the same score to many translations in a row; thread-safe."""

    def __init__(self, judge: str) -> None:
        self._judge = judge
        self._score: float | None = None
        self._n_equal = 0
        self._next = FIRST_ALARM
        self._lock = threading.Lock()

    def watch(self, scores: Iterable[float]) -> bool:
        """Adds scores of different translations, in any order; True when it warned."""
        with self._lock:
            for score in scores:
                if score != self._score:
                    self._score, self._n_equal, self._next = score, 0, FIRST_ALARM
                self._n_equal += 1
            if self._n_equal < self._next:
                return False
            self._next = 2 * self._n_equal
            logger.warning(
                "%s gave its last %d translations the same score, %g: it tells none from another, and nothing can be "
                "learned from it; look at its prompts and replies",
                self._judge,
                self._n_equal,
                self._score,
            )
        return True
