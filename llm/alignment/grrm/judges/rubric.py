"""The rubric judge: a question with scoring criteria and one answer in, a total of 10 points out (RRM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grrm.gqm.fences import UNFENCED, Guard
from grrm.gqm.grammar import Rejection
from grrm.gqm.groups import TranslationTask
from grrm.gqm.rubric import imitates_rubric, parse_total, rubric_prompt
from grrm.judges.generation import GeneratorSettings
from grrm.judges.generative import Count, GenerativeOptions, Retries, Temperature
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.spec import judge
from grrm.judges.sqm import SQMJudge
from grrm.rewards.verified import read_truth


@judge("rubric", help="judge of answers by scoring criteria", needs="generator", reference="needed", of_answers=True)
class RubricOptions(GenerativeOptions):
    """Options of the rubric judge: as in RRM, unparsable replies are resampled up to three times."""

    max_new_tokens: Count = 2048
    retries: Retries = 3
    retry_temperature: Temperature = 0.3

    has_fences: ClassVar[bool] = False

    def check_task(self, task: TranslationTask) -> None:
        """Accept every task: prompts name no language."""

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return RubricJudge(generator, **settings, mode=self.mode)


@dataclass
class RubricJudge(SQMJudge):
    """Scores each distinct answer on its own by the criteria of its question.

    The task's source is the question, its reference the criteria, else the true answer (`read_truth`); a group without
    one is MISSING_REFERENCE, an answer that writes lines of the prompt or a total of its own is UNSAFE_CANDIDATE.
    Otherwise like `SQMJudge`.
    """

    guard: Guard = UNFENCED
    name: str = "rubric"
    needs_reference: ClassVar[bool] = True

    def shown_of(self, reference: str) -> str:
        """The criteria, or the true answer if there are none."""
        truth = read_truth(reference)
        return truth.answer if truth.criteria is None else truth.criteria

    def imitates_prompt(self, text: str) -> bool:
        """True if a line of the text is one that only the prompt or the judge may write."""
        return imitates_rubric(text)

    def prompt_of(self, task: TranslationTask, text: str) -> str:
        return rubric_prompt(task.source, task.reference or "", text)

    def read(self, reply: str) -> float | Rejection:
        return parse_total(reply, self.mode)
