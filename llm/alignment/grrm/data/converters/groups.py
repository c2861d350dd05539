"""Annotated groups as rows of a parquet file: several translations of a source with a score each and one analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.converters.intake import TASK, Intake, Kind, add_keys, escape, read_usable, unsafe_reason, without_unsafe
from grrm.data.documents import Context
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS, group_prompt
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import MAX_CANDIDATES_TRAINED
from grrm.gqm.prompts import gqm_prompt


def read_groups(
    parquet: Path, mt_key: str, score_key: str, analysis_key: str | None, *, as_original: bool = False
) -> Intake:
    """Usable groups with columns src_text, src_lang, trg_lang, mt_texts, scores, analysis (renamed from the keys).

    A group has 2 to 8 candidates and as many scores, which are numbers from 0 to 10 once their decimals are cut off.
    The analysis may be empty; without a key there is none. No text is one that a judge is not shown, unless they stand
    in prompts `as_original`. Raises UserError as `read_usable` does, and when two keys name the same column.
    """
    analysis: list[tuple[str, Kind]] = [(analysis_key, "text or empty")] if analysis_key else []
    kinds = add_keys(TASK, (mt_key, "texts"), (score_key, "numbers"), *analysis)
    intake = read_usable(parquet, kinds, partial(_group_faults, mt_key, score_key))
    names = [*TASK, "mt_texts", "scores", "analysis"][: len(kinds)]
    intake = Intake(intake.table.rename_columns(names), intake.rejected)
    if as_original:
        return intake
    rows = zip(intake.table["src_text"], intake.table["mt_texts"], strict=True)
    return without_unsafe(intake, parquet, (unsafe_reason([src.as_py(), *texts.as_py()]) for src, texts in rows))


def read_scored_groups(parquet: Path, needs_reference: bool) -> Intake:
    """Usable groups with columns src_text, trg_text, src_lang, trg_lang, mt_texts, scores. Errors as in `read_groups`.

    Without `needs_reference` a group may have none, such as those that people have annotated.
    """
    reference: Kind = "text" if needs_reference else "reference"
    kinds: dict[str, Kind] = {**TASK, "trg_text": reference, "mt_texts": "texts", "scores": "numbers"}
    return read_usable(parquet, kinds, partial(_group_faults, "mt_texts", "scores"))


def integer_scores(scores: Sequence[float]) -> tuple[int, ...]:
    """The scores without their decimals: 7.9 becomes 7, as the released judges were trained."""
    return tuple(map(int, scores))


def group_prompts(
    groups: Sequence[Mapping[str, Any]],
    prompt_type: str,
    add_example: bool,
    contexts: Sequence[Context | None],
    *,
    compat: bool = False,
) -> list[str]:
    """The prompt of each group, behind its context if it has one, as a judge is shown it.

    With `compat` a group without context stands in it as the original has it: no text is escaped.
    """
    prompts = []
    for group, context in zip(groups, contexts, strict=True):
        source, texts, languages = group["src_text"], group["mt_texts"], (group["src_lang"], group["trg_lang"])
        if compat and context is None:
            prompts.append(gqm_prompt(source, texts, *languages, prompt_type, add_example))
            continue
        task = TranslationTask(source, *languages, context=context)
        prompts.append(group_prompt(task, texts, prompt_type, add_example, shown_segments(context), escape))
    return prompts


def shown_segments(context: Context | None) -> int:
    """The number of segments that a prompt shows of a row's context."""
    return 0 if context is None else MAX_CONTEXT_SEGMENTS


def _group_faults(mt_key: str, score_key: str, batch: pa.Table) -> Iterator[str | None]:
    return map(_group_fault, pc.list_value_length(batch[mt_key]).to_pylist(), batch[score_key].to_pylist())


def _group_fault(n_candidates: int | None, scores: list[float | None] | None) -> str | None:
    if n_candidates is None or scores is None:
        return None  # reported already, as is a null among the scores
    if n_candidates != len(scores):
        return f"{n_candidates} candidates but {len(scores)} scores"
    if not 2 <= n_candidates <= MAX_CANDIDATES_TRAINED:
        return f"{n_candidates} candidates instead of 2 to {MAX_CANDIDATES_TRAINED}"
    if not all(score is None or -1 < score < 11 for score in scores):
        return "a score is not from 0 to 10"
    return None
