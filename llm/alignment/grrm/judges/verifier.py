"""The verifier: is an answer right, given the question and the true answer? (TinyV)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from grrm.gqm.fences import UNFENCED, Guard
from grrm.gqm.grammar import MAX_SCORE, Rejection
from grrm.gqm.groups import TranslationTask
from grrm.gqm.verification import (
    VerifierPromptType,
    contains_true,
    leaves_its_tag,
    parse_verification,
    verifier_prompt,
)
from grrm.judges.generation import GeneratorSettings
from grrm.judges.generative import Count
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.rubric import RubricOptions
from grrm.judges.spec import Process, judge
from grrm.judges.sqm import SQMJudge
from grrm.rewards.verified import read_truth

# As TinyV's code asks its models, by the last part of their names.
_QWEN3: Mapping[str, object] = {"verifier_prompt": "tinyv-qwen3"}
_THINK: Mapping[str, object] = {"think": True, "max_new_tokens": 512}
RELEASED: Mapping[str, Mapping[str, object]] = {
    "TinyV-1.5B": {},
    "TinyV-1.5B-Think": _THINK,
    "TinyV-Qwen3-1.7B": _QWEN3,
    "TinyV-Qwen3-1.7B-Think": {**_QWEN3, **_THINK},
}


@judge("verifier", help="judge of answers by the true answer", needs="generator", reference="needed", of_answers=True)
class VerifierOptions(RubricOptions):
    """Options of the verifier, by default those of the released TinyV model that judges, else of TinyV-1.5B.

    `verifier_prompt` is the wording that the model was trained with, `think` is for models that reason first; these
    need a `max_new_tokens` of 512. A folder, or the name that a server gives its model, says which model it is by its
    last part (`RELEASED`). `mode` "exact" and "tolerant" are the same.
    """

    max_new_tokens: Count = 8
    verifier_prompt: VerifierPromptType = "tinyv"
    think: bool = False

    def open(self, process: Process) -> Judge:
        """Open the judge with the options of its model where none were given."""
        return super(VerifierOptions, self.of_process(process)).open(process)

    def of_process(self, process: Process) -> VerifierOptions:
        """Return these options, those that were not given being of the process's model, if it is a released one.

        Raises NoAnswer where the servers do not say which model they have.
        """
        if self.model_fields_set >= {"max_new_tokens", "verifier_prompt", "think"}:
            return self
        name = process.model or process.served_model() or ""
        released = RELEASED.get(name.rstrip("/").rpartition("/")[2], {})
        return self.model_copy(update={key: released[key] for key in released.keys() - self.model_fields_set})

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return VerifierJudge(generator, **settings, mode=self.mode, prompt_type=self.verifier_prompt, think=self.think)


@dataclass
class VerifierJudge(SQMJudge):
    """Scores each distinct answer 10 if it is correct, else 0.

    The task's source is the question, its reference the true answer (`read_truth`); a group without one is
    MISSING_REFERENCE, an answer with a tag of the prompt UNSAFE_CANDIDATE. A reply with neither or both is resampled.
    `mode` "compat" parses like the original, which takes every reply without `true` as false. Otherwise like
    `SQMJudge`.
    """

    guard: Guard = UNFENCED
    name: str = "verifier"
    prompt_type: VerifierPromptType = "tinyv"
    think: bool = False
    needs_reference: ClassVar[bool] = True
    cut_is_readable: ClassVar[bool] = True  # eight tokens hold the answer and often not its end

    def shown_of(self, reference: str) -> str:
        """The true answer."""
        return read_truth(reference).answer

    def imitates_prompt(self, text: str) -> bool:
        """True if the text holds a tag of the prompt."""
        return leaves_its_tag(text)

    def prompt_of(self, task: TranslationTask, text: str) -> str:
        return verifier_prompt(task.source, task.reference or "", text, self.prompt_type)

    def read(self, reply: str) -> float | Rejection:
        """10 for true, 0 for false."""
        if self.mode == "compat":
            return MAX_SCORE * contains_true(reply, self.think)
        parsed = parse_verification(reply, self.think)
        return parsed if isinstance(parsed, Rejection) else MAX_SCORE * parsed
