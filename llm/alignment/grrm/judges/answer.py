"""A judge of answers without a model: compares the candidate's final answer with the true answer by a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grrm.errors import require_known
from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge
from grrm.rewards.answers import ANSWER_RULES
from grrm.rewards.ranking_accuracy import INVALID
from grrm.rewards.rule_rewards import rule_reward_function
from grrm.rewards.verified import true_answer

JUDGED_RULES = (*ANSWER_RULES, "grade")  # whose rewards are from 0 to 1


@judge("answer", help="rule that compares answers with the true one", reference="needed", of_answers=True)
class AnswerOptions(JudgeOptions):
    """The rule's name."""

    rule: Any = "normalised"  # of any type, so that `AnswerJudge` names those that there are

    def open(self, process: Process) -> Judge:
        """Open the judge. Raises UserError as `AnswerJudge`."""
        return AnswerJudge(self.rule)

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a true answer that the rule cannot use."""
        AnswerJudge(self.rule).judge([Group("", task, (Candidate("0", "", ""),))])


@dataclass
class AnswerJudge:
    """Scores a candidate 10 if the rule `rule` finds the true answer in it, else 0.

    With the rule `grade` candidates are gradings of an answer: 10 times `grade_reward`. The task's reference is the
    true answer, or grade; a group without one is MISSING_REFERENCE.

    A candidate without an answer is UNPARSABLE_CANDIDATE; one on which the rule fails has the failure's status. Raises
    UserError for a rule that does not exist, and for a truth that the rule cannot use.
    """

    rule: str = "normalised"
    name: str = field(init=False)

    def __post_init__(self) -> None:
        require_known("answer rule", self.rule, JUDGED_RULES)
        self._reward = rule_reward_function(self.rule)
        self.name = self.rule

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        return [self._judged(group) for group in groups]

    def _judged(self, group: Group) -> Verdict:
        truth = group.task.reference
        if truth is None or true_answer(truth) is None:
            return Verdict.unscored(len(group.candidates), Status.MISSING_REFERENCE)
        answers = [candidate.translation for candidate in group.candidates]
        rewards = [INVALID if answer is None else self._reward(answer, truth) for answer in answers]
        return Verdict(
            tuple(reward.status for reward in rewards),
            tuple(MAX_SCORE * reward.score if reward.valid_answer else None for reward in rewards),
        )
