"""Translation prompts for whole columns of texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from grrm.gqm.mt_prompts import mt_prompt

_HOLE = "\0"  # stands for the source while the words around it are rendered, once per pair of languages


def mt_prompt_column(source: pa.Array, src_lang: pa.Array, trg_lang: pa.Array) -> pa.Array:
    """`mt_prompt(…, "codeblock-think")` of every row. All three are arrays of one text type and length without nulls.

    Raises UserError for an unknown language code.
    """
    pairs = pc.binary_join_element_wise(src_lang, trg_lang, pa.scalar(_HOLE, source.type)).dictionary_encode()
    around = [mt_prompt(_HOLE, *pair.split(_HOLE)).split(_HOLE) for pair in pairs.dictionary.to_pylist()]
    before, after = (pa.array([pieces[side] for pieces in around], source.type).take(pairs.indices) for side in (0, 1))
    return pc.binary_join_element_wise(before, source, after, pa.scalar("", source.type))
