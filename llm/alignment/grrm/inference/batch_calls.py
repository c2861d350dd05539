"""Common parts of ranking and translating lists of texts: the generator, languages per row, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grrm.engine.api import Engine
from grrm.engine.open import open_generator, over_engine
from grrm.errors import UserError
from grrm.judges.interface import OpenedGenerator
from grrm.models.chat_templates import chat_renderer

BATCH_ROWS = 256
Progress = Callable[[int, int], None]  # rows done, rows in all


def generator_for(
    model_path: str | Path | None,
    *,
    model: Engine | None = None,
    tokenizer: Any = None,
    chat_template: str = "chatml",
    **opening: Any,
) -> OpenedGenerator:
    """The generator over an engine that is open already and its tokenizer, else `open_generator` of `model_path`.

    Unless `opening` says otherwise, no message of PaddleNLP is left but warnings. Raises ValueError when only one
    of engine and tokenizer is given, or settings for opening beside them; UserError as `open_generator`.
    """
    if model is None and tokenizer is None:
        return open_generator(model_path, chat_template=chat_template, **{"quiet": True, **opening})
    if model is None or tokenizer is None or opening:
        raise ValueError("model and tokenizer go together, without settings for opening a model")
    render = chat_renderer(chat_template, tokenizer, None if model_path is None else Path(model_path))
    return over_engine(model, tokenizer, render)


def check_sources(sources: Sequence[object]) -> None:
    """Raises UserError as `check_list`, and that names the first source which is no text."""
    check_list("src_list", sources)
    for row, source in enumerate(sources):
        if not isinstance(source, str):
            raise UserError(f"src_list[{row}] is {source!r}; give text")


def language_per_row(languages: str | Sequence[str], n_rows: int) -> list[str]:
    """One language per row; a single one is that of all rows.

    Raises ValueError for a list of another length, UserError for what is no text.
    """
    per_row: list[Any] = list(languages) if is_list(languages) else [languages] * n_rows
    if len(per_row) != n_rows:
        raise ValueError(f"{len(per_row)} languages for {n_rows} rows")
    for language in per_row:
        if not isinstance(language, str):
            raise UserError(f"{language!r} is no language; give its code or name, or a list of one for each source")
    return per_row


def is_list(value: object) -> bool:
    """True for lists, tuples, arrays and columns: not for a text, and not for what can be read once only."""
    return hasattr(value, "__getitem__") and not isinstance(value, str | bytes | Mapping)


def check_list(name: str, value: object) -> None:
    """Raises UserError where the argument of this name is no list."""
    if not is_list(value):
        raise UserError(f"{name} is {value!r}; give a list, with one entry for each source")


def batches(n_rows: int, batch_rows: int, progress: Progress | None) -> Iterator[range]:
    """Row numbers in batches; `progress` is called after each batch.

    Raises ValueError for a batch of no rows.
    """
    if batch_rows < 1:
        raise ValueError(f"a batch needs at least one row, got {batch_rows}")
    for start in range(0, n_rows, batch_rows):
        stop = min(start + batch_rows, n_rows)
        yield range(start, stop)
        if progress is not None:
            progress(stop, n_rows)
