"""Both stages of the group judge (GQM): verdicts to learn, and prompts with the true ranking to be rewarded by."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import combinations, pairwise
from math import factorial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import integer_scores, read_groups
from grrm.data.converters.intake import with_contexts
from grrm.data.converters.output import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order
from grrm.data.converters.prompt_columns import gqm_prompt_column, list_offsets
from grrm.errors import UserError
from grrm.gqm.groups import ranking_line
from grrm.gqm.languages import CANDIDATE_IDS, MAX_CANDIDATES_TRAINED, display_name
from grrm.gqm.prompts import Span, check_prompt_type, decisive_spans, render_response, without_verdict

SFT_SCHEMA = pa.schema([("messages", MESSAGES)])
_EXTRA_INFO = pa.struct(
    [
        ("src_lang", pa.string()),
        ("trg_lang", pa.string()),
        ("analysis", pa.string()),
        ("mt_texts", pa.list_(pa.string())),
        ("shuffle_indices", pa.list_(pa.int64())),
    ]
)
RL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("ground_truth", pa.string())])),
        ("extra_info", _EXTRA_INFO),
    ]
)
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
    check_prompt_type(prompt_type)
    intake, contexts = with_contexts(read_groups(parquet, mt_key, score_key, analysis_key), parquet, context_segments)

    def build(rows: Order) -> pa.Table:
        batch = intake.table.take(rows)
        source, src_lang, trg_lang, candidates, scores, analysis = (column.combine_chunks() for column in batch.columns)
        of_rows = [contexts[row] for row in rows.tolist()] if contexts else ()
        prompts = gqm_prompt_column(source, src_lang, trg_lang, candidates, prompt_type, add_example, of_rows)
        verdicts = _verdicts(scores, prompt_type)
        texts = [""] * len(analysis) if no_analysis else analysis.to_pylist()
        analyses = [taught_analysis(text, prompt_type) for text in texts]
        taught = list(zip(analyses, verdicts, strict=True))
        messages = conversation(prompts, pa.array([text + verdict for text, verdict in taught], pa.string()))
        decisive = [_shifted(_decisive(verdict), len(text)) for text, verdict in taught]
        return pa.table([messages, pa.array(decisive)], names=[*SFT_SCHEMA.names, "decisive"])

    written = write_in_order(out, SFT_SCHEMA, shuffled_order(intake.table.num_rows, seed), build)
    return ConversionReport(out, written, intake.rejected)


def taught_analysis(analysis: str, prompt_type: str) -> str:
    """The part of an analysis to learn: before scores all of it, before a ranking without the annotator's verdict."""
    return analysis if prompt_type == "score" else without_verdict(analysis)


def _verdicts(scores: pa.ListArray, prompt_type: str) -> Iterator[str]:
    as_bytes = integer_scores(scores).tobytes()  # one byte per score; a slice of them is a key of the cache
    offsets = list_offsets(pc.list_value_length(scores).to_numpy()).tolist()
    return (_verdict(as_bytes[start:end], prompt_type) for start, end in pairwise(offsets))


@lru_cache(maxsize=65536)
def _verdict(scores: bytes, prompt_type: str) -> str:
    return render_response("", list(scores), prompt_type)


@lru_cache(maxsize=65536)
def _decisive(verdict: str) -> tuple[Span, ...]:
    return tuple(decisive_spans(verdict))


def _shifted(spans: tuple[Span, ...], by: int) -> list[Span]:
    return [(start + by, end + by) for start, end in spans]


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
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write each group, up to `subgroup_augment` sub-groups of it, and of each of these `shuffle_augment` reorderings.

    There are fewer where a group is too small for as many different ones. `extra_info.shuffle_indices[i]` is the
    position, in the group or sub-group, of the prompt's i-th candidate; `mt_texts` holds the candidates as the prompt
    orders them (`compat`: null for reordered rows, as in the original). The analysis is that of the whole group in
    every row.

    Context is as in `convert_sft_gqm`.

    Holds the input columns once, and 16 bytes per output row. Raises UserError for an unknown prompt type, with
    `compat` for `score` too, for a negative number of augmentations and as `read_groups` does.
    """
    check_prompt_type(prompt_type)
    if compat and prompt_type == "score":
        raise UserError("prompt type 'score' cannot be used here: the original's are 'ranking' and 'ranking_score'")
    if min(subgroup_augment, shuffle_augment) < 0:
        raise UserError("subgroup_augment and shuffle_augment must be 0 or more; 0 switches the augmentation off")
    intake, contexts = with_contexts(read_groups(parquet, mt_key, score_key, analysis_key), parquet, context_segments)
    sizes = pc.list_value_length(intake.table["scores"]).to_pylist()
    groups, arrangement_ids, arrangements = _plan(sizes, subgroup_augment, shuffle_augment, seed)
    arranged = _Candidates(intake.table, arrangements)

    def build(rows: Order) -> pa.Table:
        candidates, scores, indices = arranged.of(groups[rows], arrangement_ids[rows])
        batch = intake.table.select(["src_text", "src_lang", "trg_lang", "analysis"]).take(groups[rows])
        source, src_lang, trg_lang, analysis = (column.combine_chunks() for column in batch.columns)
        of_rows = [contexts[row] for row in groups[rows].tolist()] if contexts else ()
        prompts = gqm_prompt_column(source, src_lang, trg_lang, candidates, prompt_type, add_example, of_rows)
        truths = pa.array([_ground_truth(key, prompt_type) for key in scores], pa.string())
        if compat:
            reordered = pa.array(arranged.is_reordered[arrangement_ids[rows]])
            candidates = pc.if_else(reordered, pa.scalar(None, candidates.type), candidates)
        extra = [_display_names(src_lang), _display_names(trg_lang), analysis, candidates, indices]
        columns = [
            pa.repeat(pa.scalar(f"TowerBlocks-MT-Ranking.{prompt_type}"), len(rows)),
            conversation(prompts),
            pa.repeat(pa.scalar("ranking"), len(rows)),
            pa.StructArray.from_arrays([truths], ["ground_truth"]),
            pa.StructArray.from_arrays(extra, [field.name for field in _EXTRA_INFO]),
        ]
        return pa.table(columns, names=RL_SCHEMA.names)

    written = write_in_order(out, RL_SCHEMA, shuffled_order(len(groups), seed), build)
    return ConversionReport(out, written, intake.rejected)


class _Candidates:
    """The candidates of all groups, selected and ordered for a batch of output rows at once."""

    def __init__(self, table: pa.Table, arrangements: list[Arrangement]) -> None:
        texts, scores = (table[name].combine_chunks() for name in ("mt_texts", "scores"))
        self._texts, self._scores = texts.flatten(), integer_scores(scores)
        self._starts = np.concatenate([[0], np.cumsum(pc.list_value_length(texts).to_numpy())]).astype(np.int64)
        self._lengths = np.array([len(order) for _, order in arrangements], dtype=np.int64)
        self._orders = np.zeros((len(arrangements), MAX_CANDIDATES_TRAINED), dtype=np.int64)
        self._members = np.zeros_like(self._orders)
        for row, (members, order) in enumerate(arrangements):
            self._orders[row, : len(order)] = order
            self._members[row, : len(order)] = [members[position] for position in order]
        self.is_reordered = np.array([order != tuple(range(len(order))) for _, order in arrangements])

    def of(self, groups: Order, arrangement_ids: Order) -> tuple[pa.ListArray, list[bytes], pa.ListArray]:
        """Lists of candidate texts, whole scores as one byte each, and lists of places in the (sub-)group."""
        lengths = self._lengths[arrangement_ids]
        is_filled = np.arange(MAX_CANDIDATES_TRAINED) < lengths[:, None]
        picked = (self._starts[groups][:, None] + self._members[arrangement_ids])[is_filled]
        offsets = list_offsets(lengths)
        lists = pa.array(offsets)
        texts = pa.ListArray.from_arrays(lists, self._texts.take(pa.array(picked)))
        scores = self._scores[picked].tobytes()
        keys = [scores[start:end] for start, end in pairwise(offsets.tolist())]
        return texts, keys, pa.ListArray.from_arrays(lists, pa.array(self._orders[arrangement_ids][is_filled]))


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


def _display_names(languages: pa.Array) -> pa.Array:
    coded = languages.dictionary_encode()
    return pa.array([display_name(language) for language in coded.dictionary.to_pylist()]).take(coded.indices)


@lru_cache(maxsize=65536)
def _ground_truth(scores: bytes, prompt_type: str) -> str:
    """The truth for the ranking reward: a ranking line, or the scores by identifier as JSON."""
    by_id = dict(zip(CANDIDATE_IDS, scores, strict=False))
    return ranking_line(by_id) if prompt_type == "ranking" else json.dumps(by_id)
