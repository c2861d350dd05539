"""Translation prompts, byte for byte what the respective models were trained on, and the way back from a prompt."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Literal, get_args

from grrm.errors import UserError, require_known
from grrm.gqm.languages import LANG_NAMES, display_name, language_code
from grrm.gqm.prompts import FENCE, fenced

_SSR_PREAMBLE = (
    "<|startoftext|>A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>.\n\n"
)
MTPromptType = Literal["codeblock-think", "Tower", "Tower.lastl", "seedx", "seedx-cot", "SSR"]
MT_PROMPT_TYPES: tuple[str, ...] = get_args(MTPromptType)


def mt_prompt(source: str, src_lang: str, trg_lang: str, prompt_type: str = "codeblock-think") -> str:
    """The user turn that asks a policy for a translation; for `SSR` the complete text, to be used without template.

    Languages are codes or display names; `seedx` and `seedx-cot` end with the target's code in angle brackets, so
    they need a code. The two `Tower` types hold the source on one line: newlines become spaces.
    Raises UserError for an unknown code or prompt type, or a name where a code is needed.
    """
    require_known("translation prompt_type", prompt_type, MT_PROMPT_TYPES)
    src, trg = display_name(src_lang), display_name(trg_lang)
    if prompt_type == "codeblock-think":
        return (
            f"Translate the following text from {src} into {trg}. Perform a step by step analysis and output the "
            f"final translation in a code block.\n\nSource text:\n{fenced(source)}"
        )
    if prompt_type in ("Tower", "Tower.lastl"):
        return tower_prompt(source, src, trg)
    if prompt_type in ("seedx", "seedx-cot"):
        if trg_lang not in LANG_NAMES:
            raise UserError(f"Prompt type {prompt_type!r} needs the target language as a code, not {trg_lang!r}.")
        explain = " and explain it in detail" if prompt_type == "seedx-cot" else ""
        return f"Translate the following {src} sentence into {trg}{explain}:\n{source} <{trg_lang}>"
    return f"{_SSR_PREAMBLE}User:\nTranslate the following text to {trg}:\n{source}\n\nAssistant:\n"


def tower_prompt(source: str, src_name: str, trg_name: str) -> str:
    """The prompt of the `Tower` types and of the preference pipeline, with the language names as they are given."""
    single_line = source.replace("\n", " ")
    return f"Translate the following text from {src_name} into {trg_name}:\n{src_name}: {single_line}\n{trg_name}:"


_LANG = r"[^\n]{1,64}?"
# A prompt is what stands between the first head and the last end of its kind: searched for one after the other, since a
# single pattern takes quadratic time on a text of many heads and no end.
_HEADS_AND_ENDS = (
    (
        re.compile(
            rf"Translate the following text from (?P<src>{_LANG}) into (?P<trg>{_LANG})\. Perform a step by step "
            r"analysis and output the final translation in a code block\.\n\nSource text:\n```\n"
        ),
        re.compile(r"\n```(?=\n)"),
    ),
    (
        re.compile(
            rf"Translate the following (?P<src>{_LANG}) sentence into (?P<trg>{_LANG})(?: and explain it in detail)?:\n"
        ),
        re.compile(r" <[a-z]{2}>"),
    ),
)
_SINGLE_LINE = re.compile(
    rf"Translate the following text from (?P<src>{_LANG}) into (?P<trg>{_LANG}):\n"
    r"(?P=src): (?P<source>[^\n]*)\n(?P=trg):"
)


def recover_mt_task(prompt_text: str) -> tuple[str, str, str] | None:
    """(source, source language, target language) of a prompt made by `mt_prompt`, chat-templated or not.

    Languages come back as codes where `LANG_NAMES` knows the name, else as the name that stands in the prompt.
    None if there is no such prompt in the text; `SSR` prompts do not say the source language and give None.
    """
    matches = [_between(prompt_text, head, end) for head, end in _HEADS_AND_ENDS]
    if line := _SINGLE_LINE.search(prompt_text):
        matches.append((line, line["source"]))
    prompts = [prompt for prompt in matches if prompt is not None]
    if not prompts:
        return None
    # The source may itself quote a translation prompt, but it stands inside ours, so ours starts first.
    head, source = min(prompts, key=lambda prompt: prompt[0].start())
    return source, language_code(head["src"]), language_code(head["trg"])


def prompt_type_of(prompt_text: str) -> str | None:
    """The type of a prompt made by `mt_prompt`, chat-templated or not; None where there is none in the text.

    `Tower.lastl`, which differs from `Tower` in the response only, comes back as `Tower`.
    """
    task = recover_mt_task(prompt_text)
    if task is None:
        return "SSR" if _SSR_PREAMBLE in prompt_text else None
    for prompt_type in MT_PROMPT_TYPES:
        with suppress(UserError):  # a language that this type of prompt cannot name
            if mt_prompt(*task, prompt_type) in prompt_text:
                return prompt_type
    return None


def is_block_response(prompt_text: str, text: str) -> bool:
    """True for a text that ends with a code block, which a prompt of `codeblock-think` asks for."""
    return text.rstrip().endswith(FENCE) and prompt_type_of(prompt_text) == "codeblock-think"


def _between(text: str, head: re.Pattern[str], end: re.Pattern[str]) -> tuple[re.Match[str], str] | None:
    """The first head in the text and what stands between it and the last end behind it."""
    first = head.search(text)
    ends = [match.start() for match in end.finditer(text, first.end())] if first else []
    return (first, text[first.end() : ends[-1]]) if first and ends else None
