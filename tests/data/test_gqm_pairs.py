"""The right verdict of a group, and the same with two candidates swapped."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import Row, group, write_parquet

from grrm.data.converters.gqm import convert_sft_gqm
from grrm.data.converters.gqm_pairs import convert_pairs_gqm, swapped
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.grammar import ParsedVerdict, parse_verdict
from grrm.gqm.groups import tiers_of
from grrm.gqm.prompts import GQM_TASKS


def pairs(folder: Path, rows: list[Row], **settings: object) -> list[Row]:
    report = convert_pairs_gqm(write_parquet(folder / "in.parquet", rows), folder / "out.parquet", **settings)
    found: list[Row] = pq.read_table(report.path).to_pylist()
    assert len(found) == report.written
    return found


def scores_of(verdict: str, prompt_type: str) -> tuple[float, ...]:
    parsed = parse_verdict(verdict, 3, prompt_type)
    assert isinstance(parsed, ParsedVerdict)
    if parsed.scores is None:
        return tuple(-float(next(n for n, tier in enumerate(parsed.ranking) if one in tier)) for one in range(3))
    assert parsed.ranking in (None, tiers_of(parsed.scores))
    return parsed.scores


@pytest.mark.parametrize("prompt_type", GQM_TASKS)
def test_two_candidates_have_each_others_score_and_place(tmp_path: Path, prompt_type: str) -> None:
    rows = pairs(tmp_path, [group(scores=[3, 9, 7])], prompt_type=prompt_type, swaps=9)
    right = scores_of(rows[0]["chosen"], prompt_type)
    wrong = {scores_of(row["rejected"], prompt_type) for row in rows}
    expected = set()
    for one, other in combinations(range(3), 2):
        scores = list(right)
        scores[one], scores[other] = right[other], right[one]
        expected.add(tuple(scores))
    assert wrong == expected
    assert {row["chosen"] for row in rows} == {rows[0]["chosen"]}


@pytest.mark.parametrize("prompt_type", GQM_TASKS)
def test_what_is_chosen_is_what_the_cold_start_teaches(tmp_path: Path, prompt_type: str) -> None:
    rows = pairs(tmp_path, [group(analysis="B is good.\nScores: B 9")], prompt_type=prompt_type)
    taught = convert_sft_gqm(tmp_path / "in.parquet", tmp_path / "sft.parquet", prompt_type=prompt_type)
    ((user, assistant),) = (row["messages"] for row in pq.read_table(taught.path).to_pylist())
    assert (rows[0]["prompt"], rows[0]["chosen"]) == (user["content"], assistant["content"])
    assert render_chatml(rows[0]["prompt"])


@given(st.lists(st.integers(0, 10), min_size=2, max_size=8), st.integers(1, 40), st.sampled_from(["gap", "random"]))
def test_swaps_differ_and_change_the_verdict(scores: list[int], n_swaps: int, choose: str) -> None:
    found = swapped(scores, n_swaps, choose, Random(0))
    possible = [pair for pair in combinations(range(len(scores)), 2) if scores[pair[0]] != scores[pair[1]]]
    assert len(set(found)) == len(found) == min(n_swaps, len(possible))
    assert set(found) <= set(possible)
    gaps = [abs(scores[one] - scores[other]) for one, other in found]
    if choose == "gap":
        assert gaps == sorted((abs(scores[one] - scores[other]) for one, other in possible), reverse=True)[:n_swaps]


def test_seed_decides_which_are_swapped(tmp_path: Path) -> None:
    rows = [group(src_text=f"text {number}", scores=[1, 5, 9]) for number in range(20)]
    assert pairs(tmp_path, rows, seed=1) == pairs(tmp_path, rows, seed=1)
    assert {row["rejected"] for row in pairs(tmp_path, rows)} > {pairs(tmp_path, rows, choose="gap")[0]["rejected"]}


def test_groups_without_an_order_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", [group(scores=[1]), group(scores=[4, 4, 4.9]), group()])
    report = convert_pairs_gqm(source, tmp_path / "out.parquet")
    assert (report.written, [row.row for row in report.rejected]) == (1, [1, 2])


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", [group(scores=[4, 4, 4])])
    with pytest.raises(UserError, match=r"in.parquet has no group whose scores differ"):
        convert_pairs_gqm(source, tmp_path / "out.parquet")
    with pytest.raises(UserError, match=r"out.jsonl does not end with .parquet"):
        convert_pairs_gqm(source, tmp_path / "out.jsonl")
