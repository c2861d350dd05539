"""Prompts for whole columns of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.documents import Context
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS, group_prompt
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import MAX_CANDIDATES_TRAINED
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import gqm_prompt

_HOLE = "\0"  # placeholder of the texts while a prompt is rendered, once per pair of languages


def mt_prompt_column(source: pa.Array, src_lang: pa.Array, trg_lang: pa.Array) -> pa.Array:
    """`mt_prompt(…, "codeblock-think")` of every row. All three are arrays of one text type and length without nulls.

    There must be at least one row. Raises UserError for an unknown language code.
    """
    around, pair_ids = _around_holes(src_lang, trg_lang, lambda src, trg: mt_prompt(_HOLE, src, trg))
    before = pa.array([pieces[0] for pieces in around], source.type).take(pair_ids)
    return pc.binary_join_element_wise(before, source, pa.scalar(around[0][1], source.type), pa.scalar("", source.type))


def gqm_prompt_column(
    source: pa.Array,
    src_lang: pa.Array,
    trg_lang: pa.Array,
    candidates: pa.ListArray,
    prompt_type: str,
    add_example: bool,
    contexts: Sequence[Context] = (),
) -> pa.Array:
    """`gqm_prompt` of every row, whose candidates are a list of at most 8 texts; otherwise like `mt_prompt_column`.

    With `contexts`, one of each row, it is the `group_prompt` that a judge with context is shown.
    """
    if contexts:
        columns = (column.to_pylist() for column in (source, src_lang, trg_lang, candidates))
        prompts = [
            group_prompt(
                TranslationTask(text, src, trg, context=context), texts, prompt_type, add_example, MAX_CONTEXT_SEGMENTS
            )
            for text, src, trg, texts, context in zip(*columns, contexts, strict=True)
        ]
        return pa.array(prompts, source.type)
    holes = [_HOLE] * MAX_CANDIDATES_TRAINED
    around, pair_ids = _around_holes(
        src_lang, trg_lang, lambda src, trg: gqm_prompt(_HOLE, holes, src, trg, prompt_type, add_example)
    )
    lengths = pc.list_value_length(candidates).to_numpy()
    offsets = list_offsets(lengths)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    texts = candidates.flatten()
    nothing = pa.scalar("", source.type)
    labels = pa.array(around[0][1:-1], source.type).take(pa.array(positions))
    labelled = pc.binary_join_element_wise(labels, texts, nothing)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), labelled), nothing)
    before = pa.array([pieces[0] for pieces in around], source.type).take(pair_ids)
    return pc.binary_join_element_wise(before, source, joined, pa.scalar(around[0][-1], source.type), nothing)


def _around_holes(
    src_lang: pa.Array, trg_lang: pa.Array, render: Callable[[str, str], str]
) -> tuple[list[list[str]], pa.Array]:
    """The prompt's pieces for each pair of languages (they differ in the first piece only), and each row's pair."""
    pairs = pc.binary_join_element_wise(src_lang, trg_lang, pa.scalar(_HOLE, src_lang.type)).dictionary_encode()
    around = [render(*pair.split(_HOLE)).split(_HOLE) for pair in pairs.dictionary.to_pylist()]
    return around, pairs.indices


def list_offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """The offsets of lists of these lengths in their flat values, and the end of the last one."""
    return np.asarray(np.concatenate([[0], np.cumsum(lengths)]), dtype=np.int32)
