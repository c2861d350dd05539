"""Translating texts with a policy, drawing again what no translation can be extracted from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

from grrm.engine.api import Engine
from grrm.gqm.chat import CHAT_TEMPLATES
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt
from grrm.inference.batch_calls import BATCH_ROWS, Progress, batches, check_sources, generator_for, language_per_row
from grrm.judges.generation import attempt_seed
from grrm.judges.interface import GeneratedText, OpenedGenerator
from grrm.models.trained_with import TrainedWith, read_trained_with

PROMPT_TYPE = "codeblock-think"  # of a model that does not say
FAILED_TRANSLATION = "Translation Failed."  # what GRRM's translation tool writes where there is none
TEMPERATURE_STEP = 0.1
MAX_TEMPERATURE = 1.0
COMPLETE_PROMPTS = ("SSR",)  # prompt types that are whole texts, to be used without a chat template


class TranslationStatus(str, Enum):
    """The outcome of one reply."""

    TRANSLATED = "translated"
    CUT_OFF = "cut_off"  # it reached max_new_tokens, so what was extracted may lack its end
    NO_TRANSLATION = "no_translation"  # nothing could be extracted, after all retries
    TOO_LONG = "too_long"  # the prompt leaves the model no room: not sent, or refused by the server


class TranslateResult(TypedDict):
    """One entry per source, a list of `sampling_n` where that is more than one.

    `responses`: the translation, `Translation Failed.` where there is none. `raw_outputs`: the last reply as generated,
    None where the model was not asked. `statuses`: values of `TranslationStatus`.
    """

    responses: list[Any]
    raw_outputs: list[Any]
    statuses: list[Any]


@dataclass(frozen=True, slots=True)
class TranslateSettings:
    """Sampling of translations: a source with an incomplete reply is sampled again, 0.1 hotter each time, up to 1."""

    prompt_type: str = PROMPT_TYPE
    sampling_n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 4096
    retry: int = 4
    seed: int = 0
    extractor_type: str | None = None  # None: that of the prompt type


@dataclass(frozen=True, slots=True)
class SampledTranslation:
    """One reply to a source and the translation in it, None exactly for the statuses of those that have none."""

    translation: str | None
    status: TranslationStatus
    raw_output: str | None


def translate(
    model_path: str | Path | None,
    src_list: Sequence[str],
    src_langs: str | Sequence[str],
    trg_langs: str | Sequence[str],
    *,
    sampling_n: int = 1,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_new_tokens: int = 4096,
    retry: int = 4,
    prompt_type: str | None = None,
    use_chat_template: bool = True,
    model: Engine | None = None,
    tokenizer: Any = None,
    chat_template: str | None = None,
    seed: int = 0,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    **opening: Any,
) -> TranslateResult:
    """Translate every source.

    The arguments up to `tokenizer` are those of GRRM's translation tool. A prompt type or chat template of None is the
    one that the checkpoint was trained with, else codeblock-think and chatml. Same arguments, same result, whatever
    `batch_rows`.

    `model_path` is a checkpoint folder, or with `urls=[…]` the model's name on OpenAI-compatible servers (None: the
    first they have); further `opening` settings are `open_generator`'s. `model` and `tokenizer` replace opening one.

    Raises ValueError for lists of different lengths and counts below one, UserError for sources that are no texts and
    as `open_generator` and the prompts do.
    """
    check_sources(src_list)
    n_rows = len(src_list)
    languages = zip(language_per_row(src_langs, n_rows), language_per_row(trg_langs, n_rows), strict=True)
    tasks = [TranslationTask(source, *pair) for source, pair in zip(src_list, languages, strict=True)]
    trained = TrainedWith() if model_path is None or opening.get("urls") else read_trained_with(model_path)
    prompt_format = prompts_of(trained, prompt_type, chat_template)
    settings = TranslateSettings(
        prompt_format.prompt_type,
        sampling_n,
        temperature,
        top_p,
        max_new_tokens,
        retry,
        seed,
        prompt_format.extractor_type,
    )
    prompts = user_prompts(tasks, settings)
    template = template_for(settings, prompt_format.chat_template if use_chat_template else "none")
    opened = generator_for(model_path, model=model, tokenizer=tokenizer, chat_template=template, **opening)
    replies = translate_prompts(opened, prompts, settings, batch_rows=batch_rows, progress=progress)
    return TranslateResult(
        responses=_column(replies, lambda d: FAILED_TRANSLATION if d.translation is None else d.translation),
        raw_outputs=_column(replies, lambda d: d.raw_output),
        statuses=_column(replies, lambda d: d.status.value),
    )


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Prompts of a model, and the reading of its replies; `contradictions` tell options that differ from its training.

    `trained` is the prompt type that the checkpoint says it was trained with.
    """

    prompt_type: str
    extractor_type: str | None
    chat_template: str
    contradictions: tuple[str, ...] = ()
    trained: str | None = None


def prompts_of(training: TrainedWith, prompt_type: str | None, chat_template: str | None) -> PromptSettings:
    """Take the requested settings, else those of a checkpoint's training, else codeblock-think and chatml.

    Replies are read by the extractor of the training where the prompt type is taken from there, else by the type's own.
    """
    pairs = (
        ("prompt type", prompt_type, training.prompt_type),
        ("chat template", chat_template, training.chat_template),
    )
    return PromptSettings(
        prompt_type or training.prompt_type or PROMPT_TYPE,
        training.extractor_type if prompt_type is None else None,
        chat_template or training.chat_template or CHAT_TEMPLATES[0],
        tuple(
            f"{name} {trained}, not {requested}"
            for name, requested, trained in pairs
            if requested and trained not in (None, requested)
        ),
        training.prompt_type,
    )


def _column(
    results: Sequence[Sequence[SampledTranslation]], field: Callable[[SampledTranslation], str | None]
) -> list[Any]:
    rows = [[field(reply) for reply in replies] for replies in results]
    return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows


def template_for(settings: TranslateSettings, chat_template: str) -> str:
    """`chat_template`, or "none" where the prompt is a complete text."""
    return "none" if settings.prompt_type in COMPLETE_PROMPTS else chat_template


def user_prompts(tasks: Sequence[TranslationTask], settings: TranslateSettings) -> list[str]:
    """The user turns, before any chat template.

    Raises UserError for an unknown language or prompt type, ValueError for counts below one and negative retries.
    """
    if settings.retry < 0:
        raise ValueError(f"retries must not be negative, got {settings.retry}")
    if settings.sampling_n < 1 or settings.max_new_tokens < 1:
        raise ValueError(f"sampling_n and max_new_tokens must be at least 1, got {settings}")
    return [mt_prompt(task.source, task.src_lang, task.trg_lang, settings.prompt_type) for task in tasks]


def translate_prompts(
    opened: OpenedGenerator,
    prompts: Sequence[str],
    settings: TranslateSettings,
    *,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[SampledTranslation]]:
    """`sampling_n` replies to each user turn, order kept. Raises UserError as the generator does.

    The seeds of a turn follow from its key, by default its position: a part of the turns with their keys among all is
    answered as it is among all.
    """
    keys = range(len(prompts)) if keys is None else keys
    results: list[list[SampledTranslation]] = []
    for rows in batches(len(prompts), batch_rows, progress):
        texts = [opened.render(prompts[row]) for row in rows]
        results += _translate_batch(opened, texts, [keys[row] for row in rows], settings)
    return results


def _translate_batch(
    opened: OpenedGenerator, texts: Sequence[str], keys: Sequence[int], settings: TranslateSettings
) -> list[list[SampledTranslation]]:
    """A batch of replies for all texts, then batches for those with a reply that holds no translation.

    All replies to a text are drawn again, so that they come from one temperature. What is incomplete in the end stays.
    """
    limit, n = opened.max_prompt_tokens, settings.sampling_n
    results = [[SampledTranslation(None, TranslationStatus.TOO_LONG, None)] * n for _ in texts]
    rows = [i for i, text in enumerate(texts) if limit is None or opened.generator.count_tokens(text) <= limit]
    for attempt in range(settings.retry + 1):
        if not rows:
            break
        replies = opened.generator.generate_text(
            [texts[row] for row in rows for _ in range(n)],
            temperature=attempt_temperature(settings.temperature, attempt),
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            seeds=[attempt_seed(f"{keys[row]}/{k}", attempt, settings.seed) for row in rows for k in range(n)],
        )
        sampled = [_sampled(reply, settings) for reply in replies]
        for row, start in zip(rows, range(0, len(sampled), n), strict=True):
            results[row] = sampled[start : start + n]
        rows = [row for row in rows if any(reply.status is TranslationStatus.NO_TRANSLATION for reply in results[row])]
    return results


def attempt_temperature(temperature: float, attempt: int) -> float:
    """min(temperature + 0.1 * attempt, 1), but never below the temperature asked for (GRRM's translation tool)."""
    return max(temperature, min(temperature + TEMPERATURE_STEP * attempt, MAX_TEMPERATURE))


def _sampled(reply: GeneratedText, settings: TranslateSettings) -> SampledTranslation:
    if reply.finish_reason == TranslationStatus.TOO_LONG.value:
        return SampledTranslation(None, TranslationStatus.TOO_LONG, None)
    translation = extract_translation(reply.text, settings.extractor_type or settings.prompt_type)
    if translation is None:
        return SampledTranslation(None, TranslationStatus.NO_TRANSLATION, reply.text)
    is_cut = reply.finish_reason == "length"
    return SampledTranslation(
        translation, TranslationStatus.CUT_OFF if is_cut else TranslationStatus.TRANSLATED, reply.text
    )
