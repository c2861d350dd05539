"""From question-and-answer rows, as verl reads them, to the `src`/`tgt` lines of a run with several kinds of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.data.convert import ConversionReport, parse_tgt, write_lines
from grrm.gqm.chat import ASSISTANT_START, CONTROL_TOKENS, EOS_TEXT
from grrm.rewards.verified import Truth

COLUMNS = ("data_source", "prompt", "reward_model", "extra_info")


def convert_answers(parquet: Path, out_jsonl: Path) -> ConversionReport:
    """Write `{"src", "tgt", "data_source", "question"}` lines; rows that cannot be used are left out and reported.

    Columns are `data_source`, `prompt` (a list of messages with role and content), `reward_model` with its
    `ground_truth`, and if there is one `extra_info`, of which `question` and `criteria` are taken. `tgt` is the ground
    truth, with criteria `{"answer": …, "criteria": …}`. `question` is that of extra_info, else the last user message.

    Raises UserError for a file that is unreadable or empty, lacks a column, or has no usable row.
    """
    return write_lines(parquet, out_jsonl, COLUMNS, _line, optional=("extra_info",))


def _line(values: tuple[Any, ...]) -> dict[str, str] | str:
    data_source, messages, reward_model, extra = values
    if not isinstance(data_source, str) or not data_source.strip():
        return "data_source is not text"
    fault = _fault_of(messages)
    if fault is not None:
        return fault
    truth = _text(reward_model, "ground_truth")
    if truth is None:
        return "reward_model has no ground_truth that is text or a number"
    criteria = _text(extra, "criteria")
    from_user = (message["content"] for message in messages[::-1] if message["role"] == "user")
    question = _text(extra, "question") or next(from_user)
    tgt = Truth(truth, criteria).text
    if parse_tgt(tgt) is not None:
        return "its ground_truth is a translation task; convert such rows with `grrm data convert`"
    turns = "".join(f"<|im_start|>{message['role']}\n{message['content']}{EOS_TEXT}\n" for message in messages)
    return {"src": turns + ASSISTANT_START, "tgt": tgt, "data_source": data_source, "question": question}


def _fault_of(messages: Any) -> str | None:
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
        for message in messages
    ):
        return "prompt is not a list of messages with role and content"
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        return "prompt has no message of the user"
    if any(token in message["content"] or token in message["role"] for message in messages for token in CONTROL_TOKENS):
        return "prompt contains a control token of the chat template"
    return None


def _text(fields: Any, name: str) -> str | None:
    """A text or a finite number of a struct as text; None for anything else, and for blanks."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    return text if text.strip() else None
