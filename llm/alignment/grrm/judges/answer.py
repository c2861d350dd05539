"""A judge of answers without a model: is what the candidate ends in the true answer, by a rule?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Candidate, Group, Status, Verdict
from grrm.judges.verified import read_truth
from grrm.rewards.answers import answer_rule


@dataclass
class AnswerJudge:
    """Gives a candidate 10 where the rule called `rule` finds the true answer in it, else 0.

    The task's reference is the true answer; a group without one is MISSING_REFERENCE. A candidate in which no answer
    is found is UNPARSABLE_CANDIDATE. Raises UserError for a rule that does not exist.
    """

    rule: str = "normalised"
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self._rule = answer_rule(self.rule)
        self.name = self.rule

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept."""
        return [self._judged(group) for group in groups]

    def _judged(self, group: Group) -> Verdict:
        if group.task.reference is None:
            return Verdict.unscored(len(group.candidates), Status.MISSING_REFERENCE)
        truth = read_truth(group.task.reference).answer
        scores = tuple(self._score(candidate, truth) for candidate in group.candidates)
        return Verdict(
            tuple(Status.UNPARSABLE_CANDIDATE if score is None else Status.SCORED for score in scores), scores
        )

    def _score(self, candidate: Candidate, truth: str) -> float | None:
        if candidate.translation is None:
            return None
        found = self._rule(candidate.translation, truth)
        return None if found.answer is None else MAX_SCORE * found.correct
