"""Cold start of the group judge: its prompt, and an annotated analysis with the verdict in the judge's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import read_groups, whole_scores
from grrm.data.converters.shuffled import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order
from grrm.gqm.prompts import check_prompt_type, gqm_prompt, render_response

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
        groups = intake.table.take(rows_B).to_pylist()
        prompts = [_prompt(group, prompt_type, add_example) for group in groups]
        responses = [_response(group, prompt_type) for group in groups]
        turns = (pa.array(texts, pa.string()) for texts in (prompts, responses))
        return pa.table([conversation(*turns)], schema=SCHEMA)

    written = write_in_order(out, SCHEMA, shuffled_order(intake.table.num_rows, seed), build)
    return ConversionReport(out, written, intake.rejected)


def _prompt(group: dict[str, Any], prompt_type: str, add_example: bool) -> str:
    return gqm_prompt(
        group["src_text"], group["mt_texts"], group["src_lang"], group["trg_lang"], prompt_type, add_example
    )


def _response(group: dict[str, Any], prompt_type: str) -> str:
    # The scores alone go below whatever the annotator wrote; a ranking takes the place of the annotator's own verdict.
    analysis = group["analysis"] if prompt_type == "score" else without_verdict(group["analysis"])
    return render_response(analysis, whole_scores(group["scores"]), prompt_type)


def without_verdict(analysis: str) -> str:
    """The stripped analysis, without its last line if that speaks of scores or a ranking."""
    lines = analysis.strip().splitlines()
    if lines and any(word in lines[-1] for word in _VERDICT_WORDS):
        lines.pop()
    return "\n".join(lines)
