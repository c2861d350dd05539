"""The tokenizer and the chat template of a checkpoint folder, each missing part named in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grrm.errors import UserError
from grrm.gqm.chat import render_chatml

CHAT_TEMPLATES = ("chatml", "checkpoint", "none")


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer in `directory`, which has an end token.

    Folders that transformers 5 wrote are read as well: a tokenizer.json without the files of older classes.
    Raises UserError when the folder holds no tokenizer that can be read, or one that names no eos_token.
    """
    # Not a folder would be a model hub's name to AutoTokenizer, and a download that may wait for long.
    if not directory.is_dir():
        raise UserError(
            f"the tokenizer folder '{directory}' does not exist: give the folder of a downloaded checkpoint"
        )
    try:
        tokenizer = _read(directory)
    except Exception as error:
        # The tokenizers library raises plain Exception on a file it cannot read.
        known = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
        if not isinstance(error, known) and type(error) is not Exception:
            raise
        raise UserError(
            f"the folder '{directory}' has no tokenizer that can be read ({_first_line(error)}): copy the tokenizer "
            "files of the model into it"
        ) from error
    if tokenizer.eos_token_id is None:
        raise UserError(f"the tokenizer in '{directory}' names no eos_token: set it in its tokenizer_config.json")
    return tokenizer


def _read(directory: Path) -> Any:
    from paddlenlp import transformers

    named = _class_name(directory / "tokenizer_config.json")
    known = getattr(transformers, named, None) if named else None
    reads_one_file = isinstance(known, type) and issubclass(known, transformers.PretrainedTokenizerFast)
    older_files = getattr(known, "resource_files_names", {}).values()
    is_there = (directory / "tokenizer.json").is_file()
    if named and is_there and not reads_one_file and not any((directory / name).is_file() for name in older_files):
        return transformers.PretrainedTokenizerFast.from_pretrained(str(directory))
    return transformers.AutoTokenizer.from_pretrained(str(directory))


def _class_name(config: Path) -> str | None:
    if not config.is_file():
        return None
    settings = json.loads(config.read_text(encoding="utf-8"))
    return settings.get("tokenizer_class") if isinstance(settings, dict) else None


def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """The texts that the tokenizer turns into special tokens; none for a tokenizer that does not say."""
    named = tuple(getattr(tokenizer, "all_special_tokens", ()))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    added = backend.get_added_tokens_decoder().values() if backend is not None else ()
    return tuple(dict.fromkeys((*named, *(token.content for token in added if token.special))))


def chat_renderer(chat_template: str, tokenizer: Any, directory: Path | None) -> Callable[[str], str]:
    """What turns a user's turn into the complete text the model continues.

    "chatml" is the bare template that this project's checkpoints are trained with, "checkpoint" the one stored beside
    the tokenizer (in chat_template.jinja, else in its settings), "none" leaves the text as it is. Raises UserError for
    another name, or when the checkpoint's own template is asked for and is missing or cannot be rendered.
    """
    if chat_template == "chatml":
        return render_chatml
    if chat_template == "none":
        return str
    if chat_template != "checkpoint":
        raise UserError(f"chat template {chat_template!r} does not exist: use one of {', '.join(CHAT_TEMPLATES)}")
    if tokenizer is None:
        raise UserError("the checkpoint's chat template needs the folder of its tokenizer: name it, or use 'chatml'")
    _take_template_file(tokenizer, directory)
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer in '{directory}' has no chat template: add chat_template to its tokenizer_config.json, or "
            "use the template 'chatml' or 'none'"
        )
    return _checked(lambda prompt: str(tokenizer.apply_chat_template(prompt, tokenize=False)), directory)


def _take_template_file(tokenizer: Any, directory: Path | None) -> None:
    """Where transformers 5 stores the template; PaddleNLP does not look there."""
    from jinja2 import TemplateError

    file = directory and directory / "chat_template.jinja"
    if not file or not file.is_file():
        return
    try:
        tokenizer.init_chat_template(file.read_text(encoding="utf-8"))
    except (TemplateError, ValueError) as error:
        raise UserError(
            f"the chat template '{file}' cannot be read ({_first_line(error)}): correct it, or use the template "
            "'chatml'"
        ) from error


def _checked(render: Callable[[str], str], directory: Path | None) -> Callable[[str], str]:
    """`render` itself, after a trial: a template with a mistake shows it at the first text, whatever the text."""
    from jinja2 import TemplateError

    probe = "probe"
    try:
        rendered = render(probe)
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"the chat template in '{directory}' cannot be rendered ({_first_line(error)}): correct it, or use the "
            "template 'chatml'"
        ) from error
    if probe not in rendered:
        raise UserError(
            f"the chat template in '{directory}' leaves out the user's text: correct it, or use the template 'chatml'"
        )
    return render


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
