"""Chat templates: a prompt, or turns of a chat, as the text that a checkpoint was trained with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from grrm.errors import UserError, first_line, require_known
from grrm.gqm.chat import CHAT_TEMPLATES, render_chatml, render_chatml_turns
from grrm.models.tokenizer import TEMPLATE_FILE, special_tokens, without_line_break


def chat_renderer(chat_template: str, tokenizer: Any, directory: Path | None) -> Callable[[str], str]:
    """Return the function from a user's turn to the complete text that the model continues.

    "chatml" is the bare template that this project's checkpoints are trained with, "checkpoint" the one stored beside
    the tokenizer (in chat_template.jinja, else in its settings), "none" leaves the text as it is. Raises UserError for
    another name, or if the checkpoint's own template is missing or cannot be rendered.
    """
    require_known("chat template", chat_template, CHAT_TEMPLATES)
    if chat_template == "chatml":
        return render_chatml
    if chat_template == "none":
        return str
    if tokenizer is None:
        raise UserError("the checkpoint's chat template needs the folder of its tokenizer: name it, or use 'chatml'")
    _read_template_file(tokenizer, directory)
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer in '{directory}' has no chat template: add chat_template to its tokenizer_config.json, or "
            "use the template 'chatml' or 'none'"
        )
    return _checked(lambda prompt: str(tokenizer.apply_chat_template(prompt, tokenize=False)), directory)


def turns_renderer(
    chat_template: str, tokenizer: Any, directory: Path | None
) -> Callable[[Sequence[Mapping[str, str]]], str] | None:
    """As `chat_renderer`, of a chat's turns, each with a role and a content; None where there is no template.

    What it returns raises ValueError for turns that the template refuses.
    """
    chat_renderer(chat_template, tokenizer, directory)  # refuses what cannot be rendered at all
    if chat_template == "none":
        return None
    if chat_template == "chatml":
        return render_chatml_turns
    from jinja2 import TemplateError

    def render(turns: Sequence[Mapping[str, str]]) -> str:
        try:
            return str(tokenizer.apply_chat_template([dict(turn) for turn in turns], tokenize=False))
        except (TemplateError, TypeError, KeyError) as error:
            raise ValueError(first_line(error)) from error

    return render


def messages_renderer(tokenizer: Any, directory: Path) -> Callable[[Sequence[Mapping[str, str]]], str]:
    """As `turns_renderer` of the checkpoint's own template, which is looked up for the first chat.

    What it returns raises UserError for a template that is missing, and ValueError for a chat that has a special token
    or that the template refuses.
    """
    specials = special_tokens(tokenizer)

    @cache
    def own() -> Callable[[Sequence[Mapping[str, str]]], str]:
        render = turns_renderer("checkpoint", tokenizer, directory)
        assert render is not None  # which only the template "none" has not
        return render

    def rendered(messages: Sequence[Mapping[str, str]]) -> str:
        if any(token in message["content"] for message in messages for token in specials):
            raise ValueError("contains a special token of the tokenizer")
        return own()(messages)

    return rendered


def _read_template_file(tokenizer: Any, directory: Path | None) -> None:
    """Read the template where transformers 5 stores it, and PaddleNLP does not look."""
    from jinja2 import TemplateError

    file = directory and directory / TEMPLATE_FILE
    if not file or not file.is_file():
        return
    try:
        tokenizer.init_chat_template(without_line_break(file.read_text(encoding="utf-8")))
    except (TemplateError, ValueError) as error:
        raise UserError(
            f"the chat template '{file}' cannot be read ({first_line(error)}): correct it, or use the template 'chatml'"
        ) from error


def _checked(render: Callable[[str], str], directory: Path | None) -> Callable[[str], str]:
    """`render` itself, after a trial with one text: a mistake in a template shows with any text."""
    from jinja2 import TemplateError

    probe = "probe"
    try:
        rendered = render(probe)
    except (TemplateError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise UserError(
            f"the chat template in '{directory}' cannot be rendered ({first_line(error)}): correct it, or use the "
            "template 'chatml'"
        ) from error
    if probe not in rendered:
        raise UserError(
            f"the chat template in '{directory}' leaves out the user's text: correct it, or use the template 'chatml'"
        )
    return render
