"""`grrm translate`: a policy's translations of each source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.devices import SharedCommand, devices_option, over_devices
from grrm.cli.folders import leaves_out_rows, over_folder, shared, works_on_folder
from grrm.cli.options import (
    COUNT,
    FILE,
    input_options,
    is_explicit,
    model_options,
    sampling_options,
    take_model_options,
)
from grrm.cli.verdict_columns import with_empty_rows
from grrm.errors import UserError
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES

if TYPE_CHECKING:
    from grrm.cli.records import Records
    from grrm.cli.results import Columns
    from grrm.gqm.groups import TranslationTask
    from grrm.inference.translate import PromptSettings, SampledTranslation, TranslateSettings
    from grrm.judges.interface import OpenedGenerator
    from grrm.models.trained_with import TrainedWith

Reply = tuple[str | None, str, str | None]  # translation, status and raw output, as in the columns
_SHOWN_PAIRS = 6  # of those that a model was trained on


@click.command(cls=SharedCommand)
@click.argument("rows", type=FILE)
@model_options
@input_options
@sampling_options(max_new_tokens=4096, retry=4)
@click.option(
    "--prompt-type",
    type=click.Choice(MT_PROMPT_TYPES),
    help="Prompt type of the model.  [default: the one it was trained with; else codeblock-think]",
)
@click.option("-n", "--sampling-n", type=COUNT, default=1, show_default=True, help="Translations per source.")
@click.option(
    "--anchor-key",
    metavar="COLUMN",
    help="With --prompt-type Tower: column with the source in another language, whose language is in ref_lang; it is "
    "shown beside the source.",
)
@click.option(
    "--out-key",
    metavar="COLUMN",
    help="Column for the lists of translations, also of one per source. With it only that one is added.",
)
@devices_option
@over_folder(lambda options: options["out_key"] or _names(options["sampling_n"])[0])
def translate(
    rows: Path,
    out: Path | None,
    chat_template: str,
    batch_rows: int,
    anchor_key: str | None,
    out_key: str | None,
    **options: Any,
) -> None:
    """Translate each of ROWS with a model.

    ROWS is a file of rows, such as .parquet, .jsonl or .csv, with the columns src_text, src_lang and trg_lang, or text
    (`-` is standard input) with a source per line; for text, a model that was trained on one language pair needs no
    languages. ROWS may also be a folder of files like de2en.parquet, with one for --out, or --inplace.

    Added are translation, status and raw_output; with several per source the lists mt_texts, mt_statuses and
    raw_outputs, which `grrm rank` reads. A row without a translation has null there, and a blank line of text has null
    everywhere. With --out the same command goes on where an earlier one ended early, as when servers go away.
    """
    from grrm.cli.records import language, languages, read_records, tell_usable_rows, text, usable_rows
    from grrm.cli.results import result_sink
    from grrm.gqm.groups import TranslationTask
    from grrm.inference.translate import template_for, translate_prompts, user_prompts
    from grrm.models.trained_with import TrainedWith, read_trained_with

    model = take_model_options(options)
    language_options = {name: options.pop(name) for name in ("src_lang", "trg_lang")}
    trained_with = TrainedWith() if model.urls or model.model is None else read_trained_with(model.model)
    read = read_records(rows, lambda line: {"src_text": line})
    if read.is_text and len(trained_with.language_pairs or ()) == 1 and not any(language_options.values()):
        (pair,) = trained_with.language_pairs or ()
        language_options = dict(zip(language_options, pair.split("-", 1), strict=True))
    cells = [("src_text", text, "text")]
    cells += [(name, language, "a language") for name, value in language_options.items() if value is None]
    if anchor_key is not None:
        cells += [(anchor_key, text, "text"), ("ref_lang", text, "a language")]
    usable = usable_rows(read, cells[:1], "not translated") if read.is_text else None
    if works_on_folder():  # a stage of a pipeline, which no bad row may stop
        usable = tell_usable_rows(read, cells, "left out" if leaves_out_rows() else "left empty")
    records = usable.records if usable else read
    written = records if leaves_out_rows() else read
    sources = records.column("src_text", text, "text")
    src_langs, trg_langs = (languages(records, name, value) for name, value in language_options.items())
    prompting, settings = _settings(model.model, trained_with, chat_template, options)
    tasks = list(map(TranslationTask, sources, src_langs, trg_langs))
    prompts = user_prompts(tasks, settings)
    _tell_unseen(tasks, trained_with)
    if anchor_key is not None:
        prompts = _anchored(records, anchor_key, settings, zip(sources, src_langs, trg_langs, strict=True))
    types = column_types(settings, out_key)
    with result_sink(out, written, types, lambda _: _show(sources, columns)) as write:

        def open_model() -> Any:
            return shared("model", lambda: model.open(template_for(settings, prompting.chat_template)))

        def translate_rows(opened: OpenedGenerator, rows: Sequence[int]) -> list[Any]:
            chosen = [prompts[row] for row in rows]
            return _cells(translate_prompts(opened, chosen, settings, batch_rows=batch_rows, keys=rows))

        translations = over_devices(len(prompts), batch_rows, open_model, translate_rows, "translating", resumes=True)
        _summarize(translations, prompting)
        columns = _columns(translations, settings)
        new = columns if out_key is None else {out_key: [*map(_as_list, next(iter(columns.values())))]}
        write(new if usable is None or written is records else with_empty_rows(new, usable.numbers, len(read.rows)))


def _settings(
    model: str | None, trained_with: TrainedWith, chat_template: str, options: dict[str, Any]
) -> tuple[PromptSettings, TranslateSettings]:
    """The prompts and the sampling of a model; options that contradict its training, or draw copies, are told."""
    from grrm.inference.translate import TranslateSettings, prompts_of

    explicit = chat_template if is_explicit("--chat-template") else None
    prompting = prompts_of(trained_with, options.pop("prompt_type"), explicit)
    for contradiction in prompting.contradictions:
        click.echo(f"'{model}' was trained with {contradiction}: the option counts.", err=True)
    settings = TranslateSettings(prompt_type=prompting.prompt_type, extractor_type=prompting.extractor_type, **options)
    if settings.sampling_n > 1 and settings.temperature == 0:
        click.echo(
            f"--temperature 0 draws the same translation {settings.sampling_n} times: give --temperature 1 for others.",
            err=True,
        )
    return prompting, settings


def _tell_unseen(tasks: Iterable[TranslationTask], trained_with: TrainedWith) -> None:
    from grrm.gqm.languages import language_pair

    if trained_with.language_pairs is None:
        return
    pairs = Counter(language_pair(task.src_lang, task.trg_lang) for task in tasks)
    if unseen := sorted(pairs.keys() - set(trained_with.language_pairs)):
        n_rows, seen = sum(pairs[pair] for pair in unseen), trained_with.language_pairs
        learned = ", ".join(seen[:_SHOWN_PAIRS]) + (", …" if len(seen) > _SHOWN_PAIRS else "")
        click.echo(
            f"the model was not trained on {', '.join(unseen)} ({n_rows} of {pairs.total()} rows), but on {learned}.",
            err=True,
        )


def _anchored(
    records: Records, anchor_key: str, settings: TranslateSettings, rows: Iterable[tuple[str, str, str]]
) -> list[str]:
    """The prompts that show each source beside its version in another language."""
    from grrm.cli.records import text
    from grrm.gqm.pair_prompts import anchored_template, fill

    if settings.prompt_type != "Tower":
        raise UserError("--anchor-key is for --prompt-type Tower: leave out one or set the other")
    anchors = records.column(anchor_key, text, "text")
    ref_langs = records.column("ref_lang", text, "a language")
    return [
        fill(anchored_template(src_lang, trg_lang, ref_lang), source, anchor)
        for (source, src_lang, trg_lang), anchor, ref_lang in zip(rows, anchors, ref_langs, strict=True)
    ]


def _names(sampling_n: int) -> tuple[str, str, str]:
    single, several = ("translation", "status", "raw_output"), ("mt_texts", "mt_statuses", "raw_outputs")
    return single if sampling_n == 1 else several


def column_types(settings: TranslateSettings, out_key: str | None = None) -> dict[str, Any]:
    import pyarrow as pa

    kind = pa.string() if settings.sampling_n == 1 and out_key is None else pa.list_(pa.string())
    return dict.fromkeys(_names(settings.sampling_n) if out_key is None else [out_key], kind)


def _cells(translations: Sequence[Sequence[SampledTranslation]]) -> list[list[Reply]]:
    return [
        [(reply.translation, reply.status.value, reply.raw_output) for reply in replies] for replies in translations
    ]


def _columns(translations: Sequence[Sequence[Reply]], settings: TranslateSettings) -> Columns:
    fields: list[list[list[Any]]] = [[[reply[n] for reply in replies] for replies in translations] for n in range(3)]
    flat: list[list[Any]] = [[row[0] for row in rows] if settings.sampling_n == 1 else rows for rows in fields]
    return dict(zip(_names(settings.sampling_n), flat, strict=True))


def _summarize(translations: Sequence[Sequence[Reply]], prompting: PromptSettings) -> None:
    counts = Counter(status for replies in translations for _, status, _ in replies)
    click.echo(", ".join(f"{status} {count}" for status, count in sorted(counts.items())), err=True)
    n_without = counts["no_translation"]
    if 2 * n_without > counts.total():
        which = "no reply holds" if n_without == counts.total() else f"{n_without} of {counts.total()} replies lack"
        other = prompting.trained or ("codeblock-think" if prompting.prompt_type == "Tower" else "Tower")
        remedy = f"give the prompt type that the model was trained with, such as {other}"
        if prompting.prompt_type == prompting.trained:
            remedy = "the model was trained so; look at raw_output, and raise --max-new-tokens where it ends too early"
        click.echo(f"{which} a translation as --prompt-type {prompting.prompt_type} reads it: {remedy}.", err=True)


def _show(sources: Sequence[str], columns: Columns) -> None:
    from grrm.cli.results import show_table

    texts, statuses, _ = columns.values()
    rows: list[list[str] | None] = []
    for number, source in enumerate(sources):
        rows += [None, [str(number + 1), "", source]]
        replies = zip(_as_list(texts[number]), _as_list(statuses[number]), strict=True)
        rows += [["", status, text or ""] for text, status in replies]
    show_table("Translations", ["row #", "status", "source and translations"], rows)


def _as_list(replies: Any) -> list[Any]:
    return replies if isinstance(replies, list) else [replies]
