"""Groups for a judge: what they are made of, how they are scored, and that the judge's converters read them."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import invoke

from grrm.data.annotation.damage import DAMAGES
from grrm.data.annotation.gold import GoldScale, chrf_scorer
from grrm.data.annotation.groups import annotate_groups
from grrm.data.annotation.pieces import analyse_candidate, analyse_group, pieces
from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.errors import UserError
from grrm.gqm.grammar import Rejection, parse_verdict

SAMPLED = ["May 3, 2024", "3 May 2024", "May 5, 2024", "May 3", "March 3, 2024", "Mai 3, 2024"]


def sampled(folder, *rows: dict):
    full = [
        {"src_text": "3. Mai 2024", "trg_text": "May 3, 2024", "src_lang": "de", "trg_lang": "en", "mt_texts": SAMPLED}
        | row
        for row in rows
    ]
    path = folder / "sampled.parquet"
    pq.write_table(pa.Table.from_pylist(full), path)
    return path


def rows_of(path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_groups_hold_different_samples_with_their_gold_scores(tmp_path):
    report = annotate_groups(sampled(tmp_path, {}, {}), tmp_path / "out.parquet", groups_per_row=3)
    rows, chrf = rows_of(report.path), chrf_scorer()
    assert len(rows) == report.written == 6
    for row in rows:
        assert len(set(row["mt_texts"])) == 4
        assert set(row["mt_texts"]) <= set(SAMPLED)
        assert row["scores"] == [GoldScale.linear().score(chrf(text, "May 3, 2024")) for text in row["mt_texts"]]
        assert row["analysis"] == analyse_group("May 3, 2024", row["mt_texts"], row["scores"])
    assert max(max(row["scores"]) for row in rows) == 10


def test_the_same_seed_gives_the_same_groups_and_another_one_others(tmp_path):
    source = sampled(tmp_path, *[{} for _ in range(5)])
    made = [
        rows_of(annotate_groups(source, tmp_path / f"{i}.parquet", seed=seed, mixed_share=0.5).path)
        for i, seed in enumerate((1, 1, 2))
    ]
    assert made[0] == made[1] != made[2]


def test_a_share_of_the_groups_is_smaller(tmp_path):
    source = sampled(tmp_path, *[{} for _ in range(40)])
    made = [
        rows_of(annotate_groups(source, tmp_path / f"{share}.parquet", smaller_share=share, seed=1).path)
        for share in (0.0, 0.5, 1.0)
    ]
    sizes = [[len(row["mt_texts"]) for row in rows] for rows in made]
    assert set(sizes[0]) == {4}
    assert set(sizes[2]) == {2, 3}
    assert 10 <= sizes[1].count(4) <= 30


def test_rows_that_give_no_group_are_left_out_and_counted(tmp_path):
    rows = [
        {"mt_texts": [None, " ", "only one", "only one "]},
        {"mt_texts": None},
        {"trg_text": " "},
        {"mt_texts": ["```", "Translation A:", "one", "two"]},
        {"trg_lang": "xx"},
    ]
    report = annotate_groups(sampled(tmp_path, *rows), tmp_path / "out.parquet")
    (row,) = rows_of(report.path)
    assert sorted(row["mt_texts"]) == ["one", "two"]
    assert [(one.row, one.reason.split()[0]) for one in report.rejected] == [
        (1, "fewer"),
        (2, "mt_texts"),
        (3, "trg_text"),
        (5, "trg_lang:"),
    ]


def test_no_row_has_the_same_group_twice(tmp_path):
    source = sampled(tmp_path, {"mt_texts": SAMPLED[:3]})
    report = annotate_groups(source, tmp_path / "out.parquet", group_size=3, groups_per_row=5)
    assert (report.written, report.rejected) == (1, ())


def test_numbers_in_place_of_texts_are_a_fault_not_a_traceback(tmp_path):
    path = sampled(tmp_path, {})
    table = pq.read_table(path).to_pydict() | {"mt_texts": [[1, 2, 3]]}
    pq.write_table(pa.table(table), path)
    with pytest.raises(UserError, match="mt_texts is not a list of texts"):
        annotate_groups(path, tmp_path / "out.parquet")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_mixed_groups_of_any_size_keep_samples_of_the_policy(tmp_path, size):
    texts = ["a sample", "another sample", "a third", "a fourth"]
    report = annotate_groups(
        sampled(tmp_path, {"mt_texts": texts}), tmp_path / "out.parquet", mixed_share=1.0, group_size=size
    )
    (row,) = rows_of(report.path)
    assert len(set(row["mt_texts"]) & set(texts)) == size - size // 2


@pytest.mark.parametrize("names", [("out.jsonl", None), ("out.parquet", "out.parquet")])
def test_outputs_that_cannot_be_are_refused(tmp_path, names):
    out, scale = (None if name is None else tmp_path / name for name in names)
    with pytest.raises(UserError, match=r"out\.(jsonl|parquet) (does not end|cannot hold)"):
        annotate_groups(sampled(tmp_path, {}), out, fit_scale=scale)


def test_a_fitted_scale_spreads_the_scores_and_fits_other_groups(tmp_path):
    source = sampled(tmp_path, *[{} for _ in range(30)])
    scale = tmp_path / "scale.json"
    fitted = rows_of(annotate_groups(source, tmp_path / "a.parquet", fit_scale=scale).path)
    read = rows_of(annotate_groups(source, tmp_path / "b.parquet", scale=scale).path)
    assert fitted == read
    linear = rows_of(annotate_groups(source, tmp_path / "c.parquet").path)
    n_fitted, n_linear = (len({score for row in rows for score in row["scores"]}) for rows in (fitted, linear))
    assert n_fitted == 6  # as many as there are different samples
    assert n_linear < n_fitted


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"group_size": 1}, "group_size 1 is not from 2 to 8"),
        ({"group_size": 9}, "group_size 9 is not from 2 to 8"),
        ({"groups_per_row": 0}, "at least 1"),
        ({"mixed_share": 1.5}, "from 0 to 1"),
        ({"smaller_share": -0.1}, "from 0 to 1"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(tmp_path, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        annotate_groups(sampled(tmp_path, {}), tmp_path / "out.parquet", **settings)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"bounds": "0123456789"}',
        '{"bounds": [NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN]}',
        '{"bounds": [1, 2]}',
        '{"bounds": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]}',
    ],
)
def test_a_file_that_is_no_scale_is_told(tmp_path, content):
    path = tmp_path / "scale.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"scale.json .*--fit-scale"):
        annotate_groups(sampled(tmp_path, {}), tmp_path / "out.parquet", scale=path)


def test_no_group_at_all_is_an_error_that_says_why(tmp_path):
    with pytest.raises(UserError, match="no row to make a group of, the first is left out because of: fewer than two"):
        annotate_groups(sampled(tmp_path, {"mt_texts": ["one"]}), tmp_path / "out.parquet")


def test_the_judges_converters_read_what_the_command_writes(tmp_path):
    groups = tmp_path / "groups.parquet"
    arguments = ["data", "groups", str(sampled(tmp_path, {}, {})), str(groups), "--mixed-share", "0.5"]
    invoke(*arguments)
    for line in convert_sft_gqm(groups, tmp_path / "sft.jsonl").path.read_text(encoding="utf-8").splitlines():
        verdict = parse_verdict(json.loads(line)["tgt"], 4, mode="exact")
        assert not isinstance(verdict, Rejection)
        assert verdict.analysis.startswith("May 3, 2024\n")
    for line in convert_sft_gqm(groups, tmp_path / "bare.jsonl", no_analysis=True).path.read_text().splitlines():
        verdict = parse_verdict(json.loads(line)["tgt"], 4, mode="exact")
        assert not isinstance(verdict, Rejection)
        assert verdict.analysis == ""
    convert_rl_gqm(groups, tmp_path / "rl.jsonl")


def test_linear_scores_are_rounded_tenths():
    scale = GoldScale.linear()
    assert [scale.score(chrf) for chrf in (0, 4.9, 5, 14.9, 55, 95, 100)] == [0, 0, 1, 1, 6, 10, 10]


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_every_scale_keeps_the_order(chrfs, one, other):
    scale = GoldScale.spread(chrfs)
    low, high = sorted((one, other))
    assert 0 <= scale.score(low) <= scale.score(high) <= 10


def test_evenly_spread_values_get_every_score_equally_often():
    values = [float(value) for value in range(110)]
    scores = [GoldScale.spread(values).score(value) for value in values]
    assert [scores.count(score) for score in range(11)] == [10] * 11


def test_scale_that_ends_at_nine_never_gives_ten_and_is_a_scale_like_any_other(tmp_path):
    scale = GoldScale.spread([float(value) for value in range(100)], 9)
    assert [scale.score(chrf) for chrf in (0, 10, 89, 90, 100)] == [0, 1, 8, 9, 9]
    scale.save(tmp_path / "scale.json")
    assert GoldScale.load(tmp_path / "scale.json") == scale


def test_nothing_to_spread_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        GoldScale.spread([])


def test_analysis_holds_each_piece_against_each_candidate():
    text = analyse_group("3 mai 2024", ["3 mai 2023", "Le 3 juin 2024"], [7, 5])
    assert text == "3 mai 2024\n3: A+ B+\n mai: A+ B-\n 2024: A- B+\n\nA 7 B 5"
    assert analyse_candidate("3 mai 2024", "3 juin 2024") == "3 mai 2024\n3: +\n mai: -\n 2024: +"
    assert pieces("2024年3月, 5 %") == ["2024", "年", "3", "月", " 5", " %"]
    assert pieces("AI技术") == ["AI", "技", "术"]


@pytest.mark.parametrize("damaged", DAMAGES)
@given(text=st.text(max_size=30), other=st.text(max_size=30), seed=st.integers(0, 99))
def test_any_text_can_be_damaged(damaged, text, other, seed):
    assert isinstance(damaged(text, other, random.Random(seed)), str)


@pytest.mark.parametrize("damaged", DAMAGES)
def test_damage_changes_a_sentence(damaged):
    results = {damaged("12 May 2024 in Malta", "Peru and Chad", random.Random(seed)) for seed in range(20)}
    assert results - {"12 May 2024 in Malta"}
