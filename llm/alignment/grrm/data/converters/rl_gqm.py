"""Reinforcement learning of the group judge: groups, sub-groups and reordered groups with the true ranking."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import factorial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import check_choice, read_groups, whole_scores
from grrm.data.converters.shuffled import DEFAULT_SEED, MESSAGES, Order, shuffled_order, write_in_order
from grrm.errors import UserError
from grrm.gqm.languages import CANDIDATE_IDS, display_name
from grrm.gqm.prompts import gqm_prompt
from grrm.gqm.rankings import ranking_line

PROMPT_TYPES = ("ranking", "ranking_score")
_EXTRA_INFO = pa.struct(
    [
        ("src_lang", pa.string()),
        ("trg_lang", pa.string()),
        ("analysis", pa.string()),
        ("mt_texts", pa.list_(pa.string())),
        ("shuffle_indices", pa.list_(pa.int64())),
    ]
)
SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("ground_truth", pa.string())])),
        ("extra_info", _EXTRA_INFO),
    ]
)
Shape = tuple[tuple[int, ...], tuple[int, ...]]  # the candidates of a sub-group, and the order they are shown in


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
    compat: bool = False,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write each group, up to `subgroup_augment` sub-groups of it, and of each of these `shuffle_augment` reorderings.

    There are fewer where a group is too small for as many different ones. `extra_info.shuffle_indices[i]` is the
    place, in the group or sub-group, of the prompt's i-th candidate; `mt_texts` holds the candidates as the prompt
    orders them (`compat`: null for reordered rows, as in the original). The analysis is that of the whole group in
    every row. Holds the input columns once, and 16 bytes per output row. Raises UserError for prompt type `score`, a
    negative number of augmentations and as `read_groups` does.
    """
    check_choice(prompt_type, PROMPT_TYPES)
    if min(subgroup_augment, shuffle_augment) < 0:
        raise UserError("subgroup_augment and shuffle_augment must be 0 or more; 0 switches the augmentation off")
    intake = read_groups(parquet, mt_key, score_key, analysis_key)
    sizes = pc.list_value_length(intake.table["scores"]).to_pylist()
    groups_N, shape_ids_N, shapes = _plan(sizes, subgroup_augment, shuffle_augment, seed)

    def build(rows_B: Order) -> pa.Table:
        groups = intake.table.take(groups_N[rows_B]).to_pylist()
        rows = [
            _row(group, shapes[shape_id], prompt_type, add_example, compat)
            for group, shape_id in zip(groups, shape_ids_N[rows_B].tolist(), strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    written = write_in_order(out, SCHEMA, shuffled_order(len(groups_N), seed), build)
    return ConversionReport(out, written, intake.rejected)


def _plan(sizes: list[int], subgroups: int, shuffles: int, seed: int) -> tuple[Order, Order, list[Shape]]:
    """For each row of the output, before its shuffle, the group it is made of and which of the shapes it has.

    The generator is asked in the original's order: the reorderings of a group come before the draw of its sub-groups.
    """
    draw = Random(seed)
    groups, shape_ids = array("q"), array("q")
    known: dict[Shape, int] = {}
    for group, size in enumerate(sizes):
        for members in _member_sets(size, subgroups, draw):
            for order in _orders(len(members), shuffles, draw):
                groups.append(group)
                shape_ids.append(known.setdefault((members, order), len(known)))
    return np.array(groups, dtype=np.int64), np.array(shape_ids, dtype=np.int64), list(known)


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


def _row(
    group: dict[str, Any],
    shape: Shape,
    prompt_type: str,
    add_example: bool,
    compat: bool,
) -> dict[str, Any]:
    members, order = shape
    shown = [members[place] for place in order]
    texts = [group["mt_texts"][index] for index in shown]
    scores = whole_scores([group["scores"][index] for index in shown])
    prompt = gqm_prompt(group["src_text"], texts, group["src_lang"], group["trg_lang"], prompt_type, add_example)
    reordered = order != tuple(range(len(order)))
    return {
        "data_source": f"TowerBlocks-MT-Ranking.{prompt_type}",
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "ranking",
        "reward_model": {"ground_truth": _ground_truth(scores, prompt_type)},
        "extra_info": {
            "src_lang": display_name(group["src_lang"]),
            "trg_lang": display_name(group["trg_lang"]),
            "analysis": group["analysis"],
            "mt_texts": None if compat and reordered else texts,
            "shuffle_indices": order,
        },
    }


def _ground_truth(scores: list[int], prompt_type: str) -> str:
    """What the ranking reward compares a verdict with: a ranking line, or the scores by identifier as JSON."""
    by_id = dict(zip(CANDIDATE_IDS, scores, strict=False))
    return ranking_line(by_id) if prompt_type == "ranking" else json.dumps(by_id)
