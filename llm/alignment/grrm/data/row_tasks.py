"""The tasks of rows with `src` and `tgt`: translations, prompts that train a judge, and questions to answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from grrm.data.task_json import parse_tgt
from grrm.errors import UserError
from grrm.gqm.chat import user_turn
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import is_block_response, recover_mt_task
from grrm.rewards.routing import TRANSLATION

# From a row, its prompt, its `tgt` and the key of that, to its task; raises UserError for a row without one.
TaskOf = Callable[[Mapping[str, Any], str, str, str], TranslationTask]
_PROMPT_LANGUAGES = re.compile(
    r"Given a source text in (.{1,99}?) and multiple translation candidates in (.{1,99}?)\. "  # bounded: long sources
)


def translation_of(row: Mapping[str, Any], prompt: str, tgt: str, key: str) -> TranslationTask:
    """The task in `tgt`, or in a translation prompt whose plain reference `tgt` is. Raises UserError without one."""
    task = _translation(prompt, tgt)
    if task is None:
        raise UserError(
            f"{key!r} is not a translation task in JSON, nor the plain reference of a translation prompt; give the "
            "file that `grrm data convert --to rl` writes, not that of --to sft, or have a server of reward_protocol "
            "paddlenlp reward such rows"
        )
    return task


def _translation(prompt: str, tgt: str) -> TranslationTask | None:
    """A response to learn, with a code block, is no reference: translations would be compared with its fence."""
    task = parse_tgt(tgt)
    if task is not None or (tgt.lstrip().startswith("{") and '"source"' in tgt):  # a task that is damaged
        return task
    recovered = None if is_block_response(prompt, tgt) else recover_mt_task(prompt)
    return None if recovered is None else TranslationTask(*recovered, reference=tgt.strip() or None)


def any_task_of(row: Mapping[str, Any], prompt: str, tgt: str, key: str) -> TranslationTask:
    """A translation task, or one with the prompt as its source, no languages, and any label as its reference."""
    return _translation(prompt, tgt) or TranslationTask(prompt, "", "", tgt)


def ranking_of(row: Mapping[str, Any], prompt: str, tgt: str, key: str) -> TranslationTask:
    """The task of a judge's prompt with its ground truth, as `grrm data rl-gqm` writes it for training by a rule.

    It holds what a run shows and writes of the row: its source is the whole prompt, its languages are those that the
    prompt names ("" where it is worded differently), its reference is the ground truth as it is, its data source the
    rule that the key `rule_reward` names.
    """
    named = _PROMPT_LANGUAGES.search(prompt)
    src_lang, trg_lang = named.groups() if named else ("", "")
    return TranslationTask(prompt, src_lang, trg_lang, tgt, str(row.get("rule_reward", "")))


def mixed_of(row: Mapping[str, Any], prompt: str, tgt: str, key: str) -> TranslationTask:
    """A translation task or a question to answer.

    A row whose `tgt` is no translation task is a question: `tgt` is what the answer is judged by, the key `question`
    holds the question where the prompt has more than that, and the key `data_source`, which a translation task may
    have too, names the data that it is from. Raises UserError for a question without it, and for keys that are no text.
    """
    texts = {name: row.get(name, "") for name in ("data_source", "question")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise UserError(f"{name!r} is {value!r}; give text, or leave the key out")
    task = _translation(prompt, tgt)
    if task is None:
        if not texts["data_source"]:
            raise UserError(
                f"{key!r} is not a translation task in JSON, and there is no 'data_source' that would say how an "
                "answer is judged; name one"
            )
        task = TranslationTask(texts["question"] or user_turn(prompt), "", "", tgt)
    return replace(task, data_source=texts["data_source"] or TRANSLATION)
