"""Prompts of other tasks than translation: those that train a judge, and questions to answer beside translations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from grrm.data.dataset import PromptDataset, translation_task
from grrm.errors import UserError
from grrm.gqm.chat import user_turn
from grrm.gqm.groups import TranslationTask
from grrm.rewards.routing import TRANSLATION

_PROMPT_LANGUAGES = re.compile(r"Given a source text in (.+?) and multiple translation candidates in (.+?)\. ")


class CheckedPromptDataset(PromptDataset):
    """Prompts of which `check` is called with every task; it raises UserError for one that the reward cannot use.

    The error then names file and line. Otherwise like `PromptDataset`.
    """

    def __init__(self, *arguments: Any, check: Callable[[TranslationTask], object], **options: Any) -> None:
        self.check = check
        super().__init__(*arguments, **options)


class RankingPromptDataset(CheckedPromptDataset):
    """Judge prompts with their ground truths, as `grrm data rl-gqm` writes them, to train a judge by a rule reward.

    An item's task holds what a run shows and writes of the row: its source is the whole prompt, its languages are
    those that the prompt names ("" where it is worded differently), its reference is the ground truth as it is, its
    data source the rule that the key `rule_reward` names.
    """

    def _task(self, row: Mapping[str, Any], prompt: str, tgt: str, response_key: str) -> TranslationTask:
        named = _PROMPT_LANGUAGES.search(prompt)
        src_lang, trg_lang = named.groups() if named else ("", "")
        task = TranslationTask(prompt, src_lang, trg_lang, tgt, str(row.get("rule_reward", "")))
        self.check(task)
        return task


class MixedPromptDataset(CheckedPromptDataset):
    """Translation tasks and questions to answer, in any order.

    A row whose `tgt` is no translation task is a question: `tgt` is what the answer is judged by, the key `question`
    holds the question where the prompt has more than that, and the key `data_source`, which a translation task may
    have too, names the data that it is from.
    """

    def _task(self, row: Mapping[str, Any], prompt: str, tgt: str, response_key: str) -> TranslationTask:
        texts = {name: row.get(name, "") for name in ("data_source", "question")}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise UserError(f"{name!r} is {value!r}; give text, or leave the key out")
        task = translation_task(prompt, tgt)
        if task is None:
            if not texts["data_source"]:
                raise UserError(
                    f"{response_key!r} is not a translation task in JSON, and there is no 'data_source' that would say "
                    "how an answer is judged; name one"
                )
            task = TranslationTask(texts["question"] or user_turn(prompt), "", "", tgt)
        task = replace(task, data_source=texts["data_source"] or TRANSLATION)
        self.check(task)
        return task
