"""Contrastive verdicts of the group judge: the right one, and the same one with two candidates swapped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Literal

import pyarrow as pa

from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.converters.gqm import taught_analysis
from grrm.data.converters.groups import group_prompts, integer_scores, read_groups
from grrm.data.converters.intake import Intake, escape, with_contexts
from grrm.data.converters.output import DEFAULT_SEED, SFT_SCHEMA, Order, shuffled_order, taught, write_in_order
from grrm.data.parquet import check_parquet
from grrm.errors import UserError
from grrm.gqm.context import pair_prompt
from grrm.gqm.prompts import render_response

PAIR_SCHEMA = pa.schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")])
Choice = Literal["gap", "random"]


def convert_pairs_gqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    analysis_key: str = "analysis",
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    swaps: int = 1,
    choose: Choice = "random",
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write `prompt`, `chosen` and `rejected`, shuffled, for `run_dpo.py`: up to `swaps` pairs of each group.

    Both verdicts follow the analysis of the group and are of one form, which cancels in a loss of their difference; in
    the rejected one two candidates of different scores have each other's score and rank. The two are drawn at random,
    or with `choose` "gap" those first whose scores are furthest apart; no two are swapped twice in a group.

    Groups whose scores are all the same are left out and counted. Raises UserError for an unknown prompt type, an `out`
    that is not .parquet, no group to make a pair of, and as `read_groups` does.
    """
    check_parquet(out, "pairs")
    intake, contexts = with_contexts(read_groups(parquet, mt_key, score_key, analysis_key), parquet, context_segments)
    all_scores, rejected = _comparable(intake, parquet)
    rng = Random(seed)
    chosen = [(group, pair) for group, scores in enumerate(all_scores) for pair in swapped(scores, swaps, choose, rng)]
    analyses = intake.table["analysis"].to_pylist()
    shown = intake.table.select(["src_text", "src_lang", "trg_lang", "mt_texts"])

    def build(rows: Order) -> pa.Table:
        picked = [chosen[row] for row in rows.tolist()]
        groups = shown.take([group for group, _ in picked]).to_pylist()
        prompts = group_prompts(groups, prompt_type, add_example, [contexts[group] for group, _ in picked])
        verdicts = [_verdicts(analyses[group], all_scores[group], pair, prompt_type) for group, pair in picked]
        right, wrong = zip(*verdicts, strict=True)
        return pa.table(dict(zip(PAIR_SCHEMA.names, (prompts, right, wrong), strict=True)))

    return write_in_order(out, PAIR_SCHEMA, shuffled_order(len(chosen), seed), build, rejected)


def convert_sft_pairwise(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    pairs: int = 3,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write `messages` for the pairwise judge: two candidates as user, the letter of the better one as assistant.

    Up to `pairs` pairs of different scores are drawn of each group, each in a random order; the rows are shuffled. The
    negative log-likelihood of the letter is the loss of Bradley and Terry on its log-odds. Raises UserError as
    `convert_pairs_gqm`.
    """
    intake = read_groups(parquet, mt_key, score_key, None)
    all_scores, rejected = _comparable(intake, parquet)
    rng = Random(seed)
    sampled = [
        (group, rng.sample(pair, 2))
        for group, scores in enumerate(all_scores)
        for pair in swapped(scores, pairs, "random", rng)
    ]

    def build(rows: Order) -> pa.Table:
        picked = [sampled[row] for row in rows.tolist()]
        groups = intake.table.take([group for group, _ in picked]).to_pylist()
        prompts, letters = [], []
        for row, (first, other) in zip(groups, (pair for _, pair in picked), strict=True):
            both = (escape(row["mt_texts"][first]), escape(row["mt_texts"][other]))
            prompts.append(pair_prompt(escape(row["src_text"]), both, row["src_lang"], row["trg_lang"]))
            letters.append("A" if int(row["scores"][first]) > int(row["scores"][other]) else "B")
        return taught(prompts, letters, [[(0, 1)]] * len(letters))

    return write_in_order(out, SFT_SCHEMA, shuffled_order(len(sampled), seed), build, rejected)


def swapped(scores: Sequence[int], n_swaps: int, choose: Choice, rng: Random) -> list[tuple[int, int]]:
    """Up to `n_swaps` different pairs of candidates with different scores."""
    pairs = [(first, other) for first, other in combinations(range(len(scores)), 2) if scores[first] != scores[other]]
    rng.shuffle(pairs)
    if choose == "gap":
        pairs.sort(key=lambda pair: -abs(scores[pair[0]] - scores[pair[1]]))
    return pairs[:n_swaps]


def _verdicts(analysis: str, scores: Sequence[int], pair: tuple[int, int], prompt_type: str) -> tuple[str, str]:
    """The right one, and the one with the pair's scores swapped."""
    before = taught_analysis(analysis, prompt_type)
    first, other = pair
    wrong = list(scores)
    wrong[first], wrong[other] = scores[other], scores[first]
    return render_response(before, scores, prompt_type), render_response(before, wrong, prompt_type)


def _comparable(intake: Intake, parquet: Path) -> tuple[list[tuple[int, ...]], tuple[RejectedRow, ...]]:
    """The whole scores of all groups, and the rows left out, those of equal scores too.

    Raises UserError where no group has different ones.
    """
    all_scores = [integer_scores(scores) for scores in intake.table["scores"].to_pylist()]
    alike = tuple(
        RejectedRow(number, "all its scores are the same")
        for number, scores in zip(intake.numbers(), all_scores, strict=True)
        if len(set(scores)) < 2
    )
    if len(alike) == len(all_scores):
        raise UserError(f"{parquet} has no group whose scores differ; there is nothing to compare")
    return all_scores, intake.rejected + alike
