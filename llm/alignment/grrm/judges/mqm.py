"""The judge that marks errors: one prompt per distinct candidate, its errors with their severities out."""

from __future__ import annotations

from dataclasses import dataclass

from grrm.gqm.error_lines import error_prompt, parse_errors
from grrm.gqm.grammar import Rejection
from grrm.gqm.groups import TranslationTask
from grrm.gqm.spans import Spans
from grrm.judges.generation import GeneratorSettings, Reply
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.spec import judge
from grrm.judges.sqm import ContextOptions, SQMJudge


@judge("mqm", help="generative judge that marks the errors of one translation", needs="generator", marks_errors=True)
class MQMOptions(ContextOptions):
    """Options of the judge that marks errors."""

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return MQMJudge(generator, **settings, mode=self.mode, context_segments=self.context_segments)


@dataclass
class MQMJudge(SQMJudge):
    """Asks for the errors of each distinct translation, scores it by their severities, and marks where they are.

    As GEMBA-MQM does (Kocmi and Federmann, arXiv 2310.13988), without examples in the prompt: for models that follow
    instructions. Spans and score are those of `parse_errors`; otherwise like `SQMJudge`.
    """

    name: str = "mqm"

    def prompt_of(self, task: TranslationTask, text: str) -> str:
        return error_prompt(task, text)

    def read(self, reply: str) -> float | Rejection:
        errors = parse_errors(reply, "", self.mode)
        return errors if isinstance(errors, Rejection) else errors.score

    def spans_of(self, reply: Reply[float], text: str) -> Spans | None:
        errors = parse_errors(reply.text, text, self.mode)
        return None if isinstance(errors, Rejection) else errors.spans
