"""Cold start of the group judge: its prompt, and an annotated analysis with the verdict in the judge's own format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import read_groups, whole_scores
from grrm.data.converters.prompt_columns import gqm_prompt_column, list_offsets
from grrm.data.converters.shuffled import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order
from grrm.gqm.prompts import check_prompt_type, render_response

SCHEMA = pa.schema([("messages", MESSAGES)])
_VERDICT_WORDS = ("Score", "score", "Scoring", "scoring", "Ranking", "ranking")


def convert_sft_gqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    analysis_key: str = "analysis",
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write `messages`: the group prompt as user, analysis and verdict as assistant, shuffled.

    Raises UserError for an unknown prompt type and as `read_groups` does.
    """
    check_prompt_type(prompt_type)
    intake = read_groups(parquet, mt_key, score_key, analysis_key)

    def build(rows_B: Order) -> pa.Table:
        batch = intake.table.take(rows_B)
        source, src_lang, trg_lang, candidates, scores, analysis = (column.combine_chunks() for column in batch.columns)
        prompts = gqm_prompt_column(source, src_lang, trg_lang, candidates, prompt_type, add_example)
        verdicts = _verdicts(scores, prompt_type)
        responses = [
            _kept(text, prompt_type) + verdict for text, verdict in zip(analysis.to_pylist(), verdicts, strict=True)
        ]
        return pa.table([conversation(prompts, pa.array(responses, pa.string()))], schema=SCHEMA)

    written = write_in_order(out, SCHEMA, shuffled_order(intake.table.num_rows, seed), build)
    return ConversionReport(out, written, intake.rejected)


def _kept(analysis: str, prompt_type: str) -> str:
    # The scores alone go below whatever the annotator wrote; a ranking takes the place of the annotator's own verdict.
    return analysis if prompt_type == "score" else without_verdict(analysis)


def _verdicts(scores: pa.ListArray, prompt_type: str) -> Iterator[str]:
    whole = whole_scores(scores).tobytes()  # a byte per score, so that a slice is a key to look the verdict up with
    offsets = list_offsets(pc.list_value_length(scores).to_numpy()).tolist()
    return (_verdict(whole[start:end], prompt_type) for start, end in pairwise(offsets))


@lru_cache(maxsize=65536)
def _verdict(scores: bytes, prompt_type: str) -> str:
    return render_response("", list(scores), prompt_type)


def without_verdict(analysis: str) -> str:
    """The stripped analysis, without its last line if that speaks of scores or a ranking."""
    lines = analysis.strip().splitlines()
    if lines and any(word in lines[-1] for word in _VERDICT_WORDS):
        lines.pop()
    return "\n".join(lines)
