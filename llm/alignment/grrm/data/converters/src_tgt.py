"""The rows of the converters as the `src`/`tgt` lines that PaddleNLP trains on."""

from __future__ import annotations

from typing import Any

from grrm.data.convert import render_tgt
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask


def src_tgt(row: dict[str, Any]) -> dict[str, str]:
    """`src` is the chat-templated prompt. `tgt` is the response to learn, the true ranking, or the task as JSON."""
    if "messages" in row:
        user, assistant = row["messages"]
        return {"src": render_chatml(user["content"]), "tgt": assistant["content"]}
    (user,) = row["prompt"]
    return {"src": render_chatml(user["content"]), "tgt": _truth(row)}


def _truth(row: dict[str, Any]) -> str:
    if row["ability"] == "ranking":
        return str(row["reward_model"]["ground_truth"])
    info = row["extra_info"]
    return render_tgt(TranslationTask(info["src_text"], info["src_lang"], info["trg_lang"], info["trg_text"]))
