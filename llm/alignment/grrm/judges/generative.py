"""Options of the judges behind a model that generates text, and how these are opened."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from grrm.errors import UserError
from grrm.gqm.fences import Guard
from grrm.gqm.grammar import Mode
from grrm.gqm.groups import Group, TranslationTask
from grrm.gqm.languages import display_name
from grrm.judges.generation import GeneratorSettings, JudgeSampling
from grrm.judges.interface import GeneratedText, Judge, OpenedGenerator, TextGenerator
from grrm.judges.spec import JudgeOptions, Process

Count = Annotated[int, Field(ge=1)]
Retries = Annotated[int, Field(ge=0)]
Temperature = Annotated[float, Field(ge=0)]


class GenerativeOptions(JudgeOptions):
    """Options of every generative judge.

    `prompt_length` and `max_new_tokens` limit the judge's prompt and reply, in its tokens: a longer prompt gives the
    status TOO_LONG, a longer reply is resampled. `mode` is the grammar of replies. The first reply is sampled at
    `temperature`, up to `retries` more at `retry_temperature`.
    """

    prompt_length: Count = sys.maxsize  # as the model allows
    max_new_tokens: Count = 8192
    mode: Mode = "tolerant"
    temperature: Temperature = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    retries: Retries = 6
    retry_temperature: Temperature = 1.0
    seed: int = 0

    has_fences: ClassVar[bool] = True  # see `Guard`
    sees_group: ClassVar[bool] = False  # True where one prompt has all candidates of a group

    @property
    def is_read_by_position(self) -> bool:
        """See `Guard`."""
        return False

    def sampling(self) -> JudgeSampling:
        """Return the sampling options."""
        return JudgeSampling(
            self.temperature, self.top_p, self.max_new_tokens, self.retries, self.retry_temperature, self.seed
        )

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a language that a prompt cannot name."""
        for language in (task.src_lang, task.trg_lang):
            display_name(language)

    def of_process(self, process: Process) -> GenerativeOptions:
        """Return these options, with the defaults of the process's model where none were given."""
        return self

    def longest_prompt(self, of_model: int | None) -> int:
        """Return the limit on prompts where the model takes `of_model` tokens, None for any number."""
        return self.prompt_length if of_model is None else min(self.prompt_length, of_model)

    def open(self, process: Process) -> Judge:
        """Open the judge over the process's generator.

        Raises UserError as that does, for a limit on prompts whose tokens cannot be counted, and for probabilities of
        tokens from a chat endpoint.
        """
        opened = process.generator()
        if "prompt_length" in self.model_fields_set and not opened.counts_tokens:
            raise UserError(
                "judge option 'prompt_length' counts tokens, which needs the folder of the tokenizer: set tokenizer, "
                "or leave the option out"
            )
        if self.sampling().top_logprobs and not opened.continues_text:
            raise UserError(
                f"judge {process.name} reads probabilities of tokens, which a chat endpoint does not give: set "
                "chat_template to chatml or checkpoint, or score_reading of gqm and sqm to text"
            )
        settings = GeneratorSettings(
            prompt_length=self.longest_prompt(opened.max_prompt_tokens),
            sampling=self.sampling(),
            guard=Guard(frozenset(opened.special_tokens), self.has_fences, self.is_read_by_position),
            render=opened.render,
            metrics=process.metrics,
        )
        return opened.around(self.over(opened.generator, settings))

    @abstractmethod
    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        """Return the judge on a generator."""


def first_prompts(
    group: Group,
    options: GenerativeOptions,
    opened: OpenedGenerator,
    around: Callable[[Judge], Judge] = lambda judge: judge,
) -> list[str]:
    """Return the prompts that the judge, and what is put `around` it, would ask about the group first.

    Nothing is asked.
    """
    recorded: list[str] = []

    class NoModel:
        def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
            recorded.extend(prompts)
            return [GeneratedText("", "stop", 0) for _ in prompts]

        def count_tokens(self, prompt: str) -> int:
            return opened.generator.count_tokens(prompt)

    changes: dict[str, object] = {name: 0 for name in ("retries", "cache_size") if name in type(options).model_fields}
    once, without_model = options.model_copy(update=changes), replace(opened, generator=NoModel())
    around(once.open(Process(generator=lambda: without_model))).judge([group])
    return recorded
