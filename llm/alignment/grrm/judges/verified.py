"""A rule and a verifier as one judge of answers: the verifier is used where the rule does not decide (TinyV, RRM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import model_validator

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.judges.generation import GeneratorSettings
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.rubric import RubricOptions
from grrm.judges.spec import JudgeOptions, judge
from grrm.judges.verifier import VerifierOptions
from grrm.rewards.answers import ANSWER_RULES, AnswerRule, RuleName, RuleResult, normalised_match
from grrm.rewards.verified import VerifierMix, VerifierSetup, true_answer


@dataclass
class VerifiedJudge:
    """Scores answers by `mix` of the results of `rule` and `verifier`, times 10.

    `verifier` is any judge of one candidate at a time (VerifierJudge, RubricJudge). It is shown the answer that the
    rule extracted, or with `shows_solution` the full candidate.

    A candidate without an answer is UNPARSABLE_CANDIDATE if it would need the verifier; one without a score from the
    verifier has the verifier's status. With the mix `addon`, correct answers thus keep their reward while a verifier is
    down. If the rule fails, a mix that needs it gives the failure's status. A group without a true answer is
    MISSING_REFERENCE.
    """

    verifier: Judge
    rule: AnswerRule = normalised_match
    mix: VerifierMix = field(default_factory=VerifierMix)
    shows_solution: bool = False
    name: str = "verified"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, from one call of the verifier for all of them."""
        results = [self._by_rule(group) for group in groups]
        questions = [self._question(group, of_group) for group, of_group in zip(groups, results, strict=True)]
        nonempty = [index for index, question in enumerate(questions) if question.candidates]
        verdicts = (
            dict(zip(nonempty, self.verifier.judge([questions[index] for index in nonempty]), strict=True))
            if nonempty
            else {}
        )
        return [
            self._verdict(group, results[index], questions[index], verdicts.get(index))
            for index, group in enumerate(groups)
        ]

    def _by_rule(self, group: Group) -> list[RuleResult | None]:
        """The rule's result of each candidate; None for one without a result."""
        truth = true_answer(group.task.reference)
        if truth is None:
            return [None] * len(group.candidates)
        return [
            None if candidate.translation is None else self.rule(candidate.translation, truth)
            for candidate in group.candidates
        ]

    def _question(self, group: Group, results: Sequence[RuleResult | None]) -> Group:
        """The candidates for the verifier, in the form that it is shown."""
        shown = tuple(
            replace(candidate, translation=text)
            for candidate, result in zip(group.candidates, results, strict=True)
            if result is not None
            and not self._is_undecided(result)
            and self.mix.asks(result.correct)
            and (text := candidate.translation if self.shows_solution else result.answer) is not None
        )
        return Group(group.group_id, group.task, shown)

    def _is_undecided(self, result: RuleResult) -> bool:
        return result.failure is not None and self.mix.setup != "tinyv_only"

    def _verdict(
        self, group: Group, results: Sequence[RuleResult | None], question: Group, verdict: Verdict | None
    ) -> Verdict:
        said: dict[str, tuple[Status, float | None]] = {}
        if verdict is not None:
            both = zip(verdict.statuses, verdict.scores, strict=True)
            said = {
                candidate.candidate_id: outcome for candidate, outcome in zip(question.candidates, both, strict=True)
            }
        statuses, scores = list[Status](), list[float | None]()
        truth = true_answer(group.task.reference)
        for candidate, result in zip(group.candidates, results, strict=True):
            missing = Status.MISSING_REFERENCE if truth is None else Status.UNPARSABLE_CANDIDATE
            if result is not None and result.failure is not None:
                missing = result.failure
            status, score = said.get(candidate.candidate_id, (missing, None))
            reward = None
            if result is not None and not self._is_undecided(result):
                reward = self.mix.reward(result.correct, None if score is None else score / MAX_SCORE)
            statuses.append(status if reward is None else Status.SCORED)
            scores.append(None if reward is None else MAX_SCORE * reward)
        if verdict is None:
            return Verdict(tuple(statuses), tuple(scores))
        return replace(verdict, statuses=tuple(statuses), scores=tuple(scores), ranking=None, order_scores=())


class RuleOptions(JudgeOptions):
    """Options of a rule beside a verifier or a rubric judge: the rule, and how both become one reward.

    `setup` and `verifier_weight` are those of `VerifierMix`. With `shows_solution` the model sees the whole solution
    and not the answer that the rule found.
    """

    rule: RuleName = "normalised"
    setup: VerifierSetup = "tinyv_only"
    verifier_weight: float = 1.0
    shows_solution: bool = False

    @model_validator(mode="after")
    def _can_be_mixed(self) -> RuleOptions:
        VerifierMix(self.setup, self.verifier_weight)
        return self

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a true answer that the rule cannot use."""
        truth = true_answer(task.reference)
        if truth is not None:
            ANSWER_RULES[self.rule]("", truth)

    def with_rule(self, judge: Judge) -> Judge:
        """Put the rule beside `judge`."""
        mix = VerifierMix(self.setup, self.verifier_weight)
        return VerifiedJudge(judge, ANSWER_RULES[self.rule], mix, self.shows_solution, f"rule+{judge.name}")


@judge(
    "rule+verifier",
    help="a rule, and a verifier where it does not decide",
    needs="generator",
    reference="needed",
    of_answers=True,
)
class RuleVerifierOptions(RuleOptions, VerifierOptions):
    """Options of a rule and a verifier as one judge."""

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return self.with_rule(super().over(generator, settings))


@judge(
    "rule+rubric",
    help="a rule, and a rubric judge where it does not decide",
    needs="generator",
    reference="needed",
    of_answers=True,
)
class RuleRubricOptions(RuleOptions, RubricOptions):
    """Options of a rule and a rubric judge as one judge."""

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return self.with_rule(super().over(generator, settings))
