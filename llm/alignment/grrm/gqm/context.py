"""Document context in prompts: the segments before the source and their translations, shown as sources are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from grrm.errors import UserError
from grrm.gqm.fences import FENCED, fence_for
from grrm.gqm.groups import ContextSegment, TranslationTask
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import context_block, gqm_prompt, pairwise_prompt, sqm_prompt

MAX_CONTEXT_SEGMENTS = 16
Escape = Callable[[str], str]  # a text as a judge's prompt shows it, such as `Guard.escape`


def nearest_context(task: TranslationTask, n_segments: int) -> tuple[ContextSegment, ...]:
    """The last `n_segments` of the task's context, or all if there are fewer. Raises UserError as `check_context`."""
    check_context(task, n_segments)
    return (task.context or ())[-n_segments:] if n_segments else ()


def check_context(task: TranslationTask, n_segments: int) -> None:
    """Raise UserError for a task of unknown context (None) if a judge reads any."""
    if n_segments and task.context is None:
        raise UserError(
            f"the judge reads {n_segments} preceding segments (context_segments), but a source comes without its "
            "document: give rows with the columns document and position, in RL also the key context_segments, or use "
            "a judge without context"
        )


def context_texts(context: Iterable[ContextSegment]) -> list[str]:
    """All texts of the segments, in order."""
    return [text for segment in context for text in segment if text is not None]


def with_shown_context(task: TranslationTask, n_segments: int, escape: Escape = FENCED.escape) -> TranslationTask:
    """The task with source and nearest segments as a prompt shows them. Raises UserError as `check_context`."""
    context = tuple(
        ContextSegment(escape(source), None if translation is None else escape(translation))
        for source, translation in nearest_context(task, n_segments)
    )
    return replace(task, source=escape(task.source), context=context)


def group_prompt(
    task: TranslationTask,
    candidates: Sequence[str],
    prompt_type: str,
    add_example: bool,
    n_segments: int,
    escape: Escape = FENCED.escape,
) -> str:
    """`gqm_prompt` of the task, every text as `escape` shows it, behind `n_segments` of context.

    Raises UserError as `gqm_prompt` and `check_context`, ValueError as the former.
    """
    shown, texts = with_shown_context(task, n_segments, escape), [escape(text) for text in candidates]
    context = shown.context or ()
    fence = fence_for([shown.source, *texts, *context_texts(context)])
    languages = (task.src_lang, task.trg_lang)
    return gqm_prompt(shown.source, texts, *languages, prompt_type, add_example, fence=fence, context=context)


def single_prompt(shown: TranslationTask, text: str) -> str:
    """`sqm_prompt` of a task from `with_shown_context` and an escaped translation."""
    context = shown.context or ()
    fence = fence_for([shown.source, text, *context_texts(context)])
    return sqm_prompt(shown.source, text, shown.src_lang, shown.trg_lang, fence, context)


def pair_prompt(source: str, pair: tuple[str, str], src_lang: str, trg_lang: str) -> str:
    """`pairwise_prompt` of escaped texts. Raises UserError as that does."""
    return pairwise_prompt(source, pair, src_lang, trg_lang, fence_for([source, *pair]))


def ranker_prompt(task: TranslationTask, prompt_type: str, n_segments: int = 0) -> str:
    """`mt_prompt` of the task behind `n_segments` of context, in fences longer than any in their texts.

    Raises UserError as `mt_prompt` and `check_context`, and for context before a prompt that is a complete text.
    """
    prompt = mt_prompt(task.source, task.src_lang, task.trg_lang, prompt_type)
    context = nearest_context(task, n_segments)
    if n_segments and prompt_type == "SSR":
        raise UserError("prompt_type 'SSR' is a complete text without a place for context; set context_segments to 0")
    return context_block(context, fence_for(context_texts(context))) + prompt
