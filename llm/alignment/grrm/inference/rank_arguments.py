"""What the arguments of `grrm.rank` must be, checked before a model is opened."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from grrm.errors import UserError
from grrm.judges.building import (
    ANSWER_JUDGES,
    EMBEDDED_JUDGES,
    GENERATIVE_JUDGES,
    REWARD_MODEL_JUDGES,
    check_judge_name,
    needs_no_model,
)
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.plug_in import is_plug_in
from grrm.judges.text_metric import METRICS

_OF_NO_MODEL = (  # what is read whatever the judge
    "model_path",
    "src_list",
    "mt_list",
    "src_langs",
    "trg_langs",
    "judge",
    "references",
    "batch_rows",
    "progress",
    "judge_options",
)
_ARGUMENT_OF = {"retries": "retry"}  # the name of the argument where a judge's option has another one


def generates_text(judge: str) -> bool:
    """True for judges that need a model that generates text."""
    return judge in GENERATIVE_JUDGES


def check_judge(judge: object) -> None:
    """Raises UserError for what is no name of a judge that `rank` can ask."""
    if not isinstance(judge, str):
        raise UserError(f"judge is {judge!r}; give the name of one, such as 'gqm'")
    if judge in METRIC_KINDS:
        raise UserError(f"judge {judge!r} runs in an environment of its own: use `grrm rank --judge {judge}`")
    check_judge_name(judge, [*GENERATIVE_JUDGES, *REWARD_MODEL_JUDGES, *EMBEDDED_JUDGES])


def not_at_default(function: Callable[..., Any], arguments: Mapping[str, object]) -> list[str]:
    """The names of the arguments that differ from the function's defaults."""
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    return [name for name in defaults if name in arguments and not _is_same(arguments[name], defaults[name])]


def _is_same(value: object, default: object) -> bool:
    """Compares plain values only: an array of texts would be compared text by text."""
    return value is default or (isinstance(value, (str, int, float)) and value == default)


def check_options(options: object, given: Collection[str]) -> dict[str, Any]:
    """`judge_options` as a dict. Raises UserError for no mapping, or an option that is among the `given` arguments."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise UserError(f"judge_options is {options!r}; give options by name, such as {{'show_copies': True}}")
    for name in options:
        if _ARGUMENT_OF.get(name, name) in given:
            raise UserError(f"{name} is given as an argument and among judge_options; leave out one of the two")
    return dict(options)


def refuse_unread(judge: str, given: Iterable[str]) -> None:
    """Raises UserError for arguments of generation, or of opening a generator, given to a judge without one."""
    read = _OF_NO_MODEL if needs_no_model(judge) else (*_OF_NO_MODEL, "chat_template", "dtype")
    unread = [name for name in given if name not in read]
    if unread:
        raise UserError(f"judge {judge!r} generates no text and does not read {', '.join(unread)}: leave it out")


def check_texts(sources: Sequence[object], candidates: Sequence[object]) -> None:
    """Raises UserError that names the first row whose source is no text or whose candidates are no list of texts."""
    for row, (source, texts) in enumerate(zip(sources, candidates, strict=True)):
        if not isinstance(source, str):
            raise UserError(f"src_list[{row}] is {source!r}; give text")
        if isinstance(texts, (str, bytes, Mapping)) or not hasattr(texts, "__iter__"):
            raise UserError(f"mt_list[{row}] is {texts!r}; give a list of texts, the candidates of source {row}")
        for text in texts:
            if not (text is None or isinstance(text, str)):
                raise UserError(f"mt_list[{row}] holds {text!r}; give texts, and None for a missing candidate")


def references_per_row(judge: str, references: Sequence[str] | None, n_rows: int) -> Sequence[str | None]:
    """One per row.

    Raises UserError where the judge lacks them, would not read them, or they are no texts; ValueError for another
    number of them.
    """
    needed = judge in (*ANSWER_JUDGES, *METRICS, "text_metric", "answer")
    if not is_plug_in(judge) and needed != (references is not None):
        reads = "needs `references`, true translations or answers, or criteria" if needed else "reads no references"
        raise UserError(f"judge {judge!r} {reads}: {'give' if references is None else 'leave out'} the argument")
    if references is None:
        return [None] * n_rows
    if isinstance(references, str):
        raise UserError(f"references is the text {references!r}; give a list, one reference per source")
    if len(references) != n_rows:
        raise ValueError(f"{len(references)} references for {n_rows} sources")
    for row, reference in enumerate(references):
        if not isinstance(reference, str):
            raise UserError(f"references[{row}] is {reference!r}; give text")
    return references
