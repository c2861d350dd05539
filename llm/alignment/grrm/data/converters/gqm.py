"""Both stages of the group judge (GQM): verdicts to learn, and prompts with the true ranking to be rewarded by."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import combinations
from math import factorial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import group_prompts, integer_scores, read_groups
from grrm.data.converters.intake import with_contexts
from grrm.data.converters.output import (
    DEFAULT_SEED,
    JUDGE_RL_SCHEMA,
    SFT_SCHEMA,
    Order,
    conversation,
    shuffled_order,
    taught,
    write_in_order,
)
from grrm.errors import UserError
from grrm.gqm.groups import ranking_line
from grrm.gqm.languages import CANDIDATE_IDS, display_name
from grrm.gqm.prompts import Span, decisive_spans, render_response, without_verdict

_EXTRA_INFO = pa.struct(
    [
        ("src_lang", pa.string()),
        ("trg_lang", pa.string()),
        ("analysis", pa.string()),
        ("mt_texts", pa.list_(pa.string())),
        ("shuffle_indices", pa.list_(pa.int64())),
    ]
)
RL_SCHEMA = JUDGE_RL_SCHEMA.append(pa.field("extra_info", _EXTRA_INFO))
Arrangement = tuple[tuple[int, ...], tuple[int, ...]]  # candidates of a group, and the order to show them in


def convert_sft_gqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    analysis_key: str = "analysis",
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    no_analysis: bool = False,
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write `messages`: the group prompt as user, analysis and verdict as assistant, shuffled.

    With `no_analysis` the verdict alone is taught.

    The prompt shows `context_segments` of each row's document, as the judge does with that option. Raises UserError for
    an unknown prompt type and as `read_groups` and `with_contexts` do.
    """
    intake, contexts = with_contexts(read_groups(parquet, mt_key, score_key, analysis_key), parquet, context_segments)

    def build(rows: Order) -> pa.Table:
        groups = intake.table.take(rows).to_pylist()
        prompts = group_prompts(groups, prompt_type, add_example, [contexts[row] for row in rows.tolist()])
        verdicts = [_verdict(integer_scores(group["scores"]), prompt_type) for group in groups]
        analyses = ["" if no_analysis else taught_analysis(group["analysis"], prompt_type) for group in groups]
        pairs = list(zip(analyses, verdicts, strict=True))
        decisive = [
            [(len(text) + start, len(text) + end) for start, end in _decisive(verdict)] for text, verdict in pairs
        ]
        return taught(prompts, [text + verdict for text, verdict in pairs], decisive)

    return write_in_order(out, SFT_SCHEMA, shuffled_order(intake.table.num_rows, seed), build, intake.rejected)


def taught_analysis(analysis: str, prompt_type: str) -> str:
    """The part of an analysis to learn: before scores all of it, before a ranking without the annotator's verdict."""
    return analysis if prompt_type == "score" else without_verdict(analysis)


@lru_cache(maxsize=65536)
def _verdict(scores: tuple[int, ...], prompt_type: str) -> str:
    return render_response("", scores, prompt_type)


@lru_cache(maxsize=65536)
def _decisive(verdict: str) -> tuple[Span, ...]:
    return tuple(decisive_spans(verdict))


def convert_rl_gqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    analysis_key: str = "analysis",
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    subgroup_augment: int = 0,
    shuffle_augment: int = 0,
    order_only: bool = False,
    compat: bool = False,
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write each group, up to `subgroup_augment` sub-groups of it, and of each of these `shuffle_augment` reorderings.

    There are fewer where a group is too small for as many different ones. `extra_info.shuffle_indices[i]` is the
    position, in the group or sub-group, of the prompt's i-th candidate; `mt_texts` holds the candidates as the prompt
    orders them. The analysis is that of the whole group in every row.

    With `compat`, as in the original, `mt_texts` is null for reordered rows, and prompts have texts as they are.

    Context is as in `convert_sft_gqm`. With `order_only`, for prompt type `score`, the ground truth is the order of the
    scores, decimals included, for the rule `score_ordering`; groups need no analysis.

    Holds the input columns once, and 16 bytes per output row. Raises UserError for an unknown prompt type, with
    `compat` for `score` too, with `order_only` for others, and as `read_groups` does.
    """
    if order_only and prompt_type != "score":
        raise UserError(f"order_only is for prompt type 'score', not for {prompt_type!r}")
    if compat and prompt_type == "score":
        raise UserError("prompt type 'score' cannot be used here: the original's are 'ranking' and 'ranking_score'")
    source = read_groups(parquet, mt_key, score_key, None if order_only else analysis_key, as_original=compat)
    intake, contexts = with_contexts(source, parquet, context_segments)
    sizes = pc.list_value_length(intake.table["scores"]).to_pylist()
    groups, arrangement_ids, arrangements = _plan(sizes, subgroup_augment, shuffle_augment, seed)

    def build(rows: Order) -> pa.Table:
        orders = [arrangements[number] for number in arrangement_ids[rows].tolist()]
        batch = intake.table.take(groups[rows]).to_pylist()
        shown = [_arranged(group, *order) for group, order in zip(batch, orders, strict=True)]
        of_rows = [contexts[row] for row in groups[rows].tolist()]
        prompts = group_prompts(shown, prompt_type, add_example, of_rows, compat=compat)
        columns = zip(prompts, shown, (order for _, order in orders), strict=True)
        return pa.Table.from_pylist([_rl_row(*row, prompt_type, order_only, compat) for row in columns], RL_SCHEMA)

    return write_in_order(out, RL_SCHEMA, shuffled_order(len(groups), seed), build, intake.rejected)


def _arranged(group: Mapping[str, Any], members: tuple[int, ...], order: tuple[int, ...]) -> dict[str, Any]:
    """A group of these candidates of it, in this order of them."""
    return {**group, **{name: [group[name][members[at]] for at in order] for name in ("mt_texts", "scores")}}


def _rl_row(
    prompt: str, group: Mapping[str, Any], order: tuple[int, ...], prompt_type: str, order_only: bool, compat: bool
) -> dict[str, Any]:
    """A row for reinforcement learning on a group whose candidates are in this order."""
    lacks_texts = compat and order != tuple(range(len(order)))
    scores = tuple(group["scores"]) if order_only else integer_scores(group["scores"])
    return {
        "data_source": f"TowerBlocks-MT-Ranking.{'score_ordering' if order_only else prompt_type}",
        "prompt": conversation(prompt),
        "ability": "ranking",
        "reward_model": {"ground_truth": _ground_truth(scores, order_only or prompt_type == "ranking")},
        "extra_info": {
            "src_lang": display_name(group["src_lang"]),
            "trg_lang": display_name(group["trg_lang"]),
            "analysis": group.get("analysis"),
            "mt_texts": None if lacks_texts else group["mt_texts"],
            "shuffle_indices": order,
        },
    }


def _plan(sizes: list[int], subgroups: int, shuffles: int, seed: int) -> tuple[Order, Order, list[Arrangement]]:
    """Group and arrangement number of each output row before the shuffle, and all different arrangements.

    Random numbers are drawn in the original's order: the reorderings of a group before its sub-groups.
    """
    draw = Random(seed)
    groups, arrangement_ids = array("q"), array("q")
    numbers: dict[Arrangement, int] = {}
    for group, size in enumerate(sizes):
        for members in _member_sets(size, subgroups, draw):
            for order in _orders(len(members), shuffles, draw):
                groups.append(group)
                arrangement_ids.append(numbers.setdefault((members, order), len(numbers)))
    return np.array(groups, dtype=np.int64), np.array(arrangement_ids, dtype=np.int64), list(numbers)


def _member_sets(size: int, subgroups: int, draw: Random) -> Iterator[tuple[int, ...]]:
    """The whole group, then `subgroups` different sub-groups of at least two, their candidates in the group's order."""
    yield tuple(range(size))
    if subgroups and size > 2:
        smaller = list(_smaller_sets(size))
        draw.shuffle(smaller)
        yield from smaller[:subgroups]


@cache
def _smaller_sets(size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(chosen for count in range(2, size) for chosen in combinations(range(size), count))


def _orders(size: int, shuffles: int, draw: Random) -> Iterator[tuple[int, ...]]:
    """The identity, then `shuffles` other permutations (all others, if there are not so many), no two the same."""
    seen = {tuple(range(size))}
    yield from seen
    while len(seen) < min(1 + shuffles, factorial(size)):
        order = list(range(size))
        draw.shuffle(order)
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield tuple(order)


@lru_cache(maxsize=65536)
def _ground_truth(scores: tuple[float, ...], is_ranking: bool) -> str:
    """The truth for the ranking reward: a ranking line, or the scores by identifier as JSON."""
    by_id = dict(zip(CANDIDATE_IDS, scores, strict=False))
    return ranking_line(by_id) if is_ranking else json.dumps(by_id)
