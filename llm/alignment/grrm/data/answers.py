"""From question-and-answer rows, as verl reads them, to the `src`/`tgt` lines of a run with several kinds of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from grrm.data.chats import messages_fault
from grrm.data.convert import ConversionReport, write_lines
from grrm.data.layouts.opening import open_table
from grrm.data.task_json import parse_tgt
from grrm.errors import UserError
from grrm.gqm.chat import CONTROL_TOKENS, render_chatml_turns
from grrm.rewards.verified import Truth

COLUMNS = ("data_source", "prompt", "reward_model", "extra_info")
KNIGHTS_AND_KNAVES = ("quiz", "solution_text_format")
# Of PaddleNLP's example, character for character: its curves are those of this prompt.
PUZZLE_SYSTEM = (
    "You are a helpful assistant. The assistant first thinks about the reasoning process in the mind and then provides "
    "the user with the answer. The reasoning process and answer are enclosed within <think> </think> and<answer> "
    "</answer> tags, respectively, i.e., <think> reasoning process here </think><answer> answer here </answer>.  Now "
    "the user asks you to solve a logical reasoning problem. After thinking, when you finally reach a conclusion, "
    "clearly state the identity of each character within <answer> </answer> tags. i.e., <answer> (1) Zoey is a "
    "knight\n(2) ... </answer>.\n"
)


def convert_answers(rows: Path, out_jsonl: Path, data_source: str | None = None) -> ConversionReport:
    """Write `{"src", "tgt", "data_source", "question"}` lines; rows that cannot be used are left out and reported.

    Columns are `data_source`, `prompt` (a list of messages with role and content), `reward_model` with its
    `ground_truth`, and if there is one `extra_info`, of which `question` and `criteria` are taken. `tgt` is the ground
    truth, with criteria `{"answer": …, "criteria": …}`. `question` is that of extra_info, else the last user message.

    Or they are those of K-and-K/knights-and-knaves, `quiz` and `solution_text_format`, for which the prompt is that of
    PaddleNLP's example; or PaddleNLP's `src` and `tgt`, of which `data_source` names the data.

    Raises UserError for a file that is unreadable or empty, lacks a column, or has no usable row.
    """
    names = set(open_table(rows).names)
    if {*KNIGHTS_AND_KNAVES} <= names:
        return write_lines(rows, out_jsonl, KNIGHTS_AND_KNAVES, partial(_puzzle, data_source or "knights-and-knaves"))
    if {"src", "tgt"} <= names:
        if data_source is None:
            raise UserError(f"{rows} has src and tgt, and nothing that names its data; add --data-source NAME")
        return write_lines(rows, out_jsonl, ("src", "tgt"), partial(_rendered, data_source))
    if data_source is not None:
        raise UserError(f"{rows} names the data of each row in data_source; leave out --data-source")
    return write_lines(rows, out_jsonl, COLUMNS, _line, optional=("extra_info",))


def _puzzle(data_source: str, values: tuple[Any, ...]) -> dict[str, str] | str:
    quiz, solution = values
    if not all(isinstance(text, str) and text.strip() for text in values):
        return "quiz or solution_text_format is not text"
    if any(token in quiz for token in CONTROL_TOKENS):
        return "quiz contains a control token of the chat template"
    turns = [{"role": "system", "content": PUZZLE_SYSTEM}, {"role": "user", "content": f"{quiz}\n"}]
    return {
        "src": f"{render_chatml_turns(turns)}<think>",
        "tgt": Truth(solution).text,
        "data_source": data_source,
        "question": quiz,
    }


def _rendered(data_source: str, values: tuple[Any, ...]) -> dict[str, str] | str:
    src, tgt = (value[0] if isinstance(value, list) and len(value) == 1 else value for value in values)
    if not isinstance(src, str) or not isinstance(tgt, str) or not src.strip() or not tgt.strip():
        return "src or tgt is not text"
    return {"src": src, "tgt": tgt, "data_source": data_source}


def _line(values: tuple[Any, ...]) -> dict[str, str] | str:
    data_source, messages, reward_model, extra = values
    if not isinstance(data_source, str) or not data_source.strip():
        return "data_source is not text"
    fault = messages_fault(messages, CONTROL_TOKENS)
    if fault is not None:
        return f"prompt {fault}"
    truth = _text(reward_model, "ground_truth")
    if truth is None:
        return "reward_model has no ground_truth that is text or a number"
    criteria = _text(extra, "criteria")
    from_user = (message["content"] for message in messages[::-1] if message["role"] == "user")
    question = _text(extra, "question") or next(from_user)
    tgt = Truth(truth, criteria).text
    if parse_tgt(tgt) is not None:
        return "its ground_truth is a translation task; convert such rows with `grrm data convert`"
    return {"src": render_chatml_turns(messages), "tgt": tgt, "data_source": data_source, "question": question}


def _text(fields: Any, name: str) -> str | None:
    """A text or a finite number of a struct as text; None for anything else, and for blanks."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    return text if text.strip() else None
