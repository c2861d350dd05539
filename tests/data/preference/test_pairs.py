"""Preference pairs: the best of the considered candidates against the worst; rows that cannot be used are named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.preference.pairs import PairRules, best_and_worst, write_pairs
from grrm.errors import UserError

COLUMNS = {name: name for name in ("src_text", "src_lang", "trg_lang")}


def row(texts, scores, **changed):
    return {"src_text": "s", "src_lang": "en", "trg_lang": "de", "mts": texts, "sc": scores} | changed


def written(folder, rows, rules=None, columns=None, **files):
    for name, content in {"en2de": rows, **files}.items():
        pq.write_table(pa.Table.from_pylist(content), folder / f"{name}.parquet")
    report = write_pairs(
        folder,
        folder / "pairs.parquet",
        mt_texts_key="mts",
        score_key="sc",
        rules=rules,
        columns=COLUMNS if columns is None else columns,
    )
    return report, pq.read_table(folder / "pairs.parquet").to_pylist()


def pair_by_row(scores, rules):
    """The rules once more, a candidate at a time."""
    considered = [
        (score, place)
        for place, score in enumerate(scores[: rules.use_sampling_num])
        if score is not None
        and (not rules.valid_score_range or rules.valid_score_range[0] <= score <= rules.valid_score_range[1])
    ]
    if len(considered) < 2:
        return None
    loser = min(considered)
    winner = max(considered, key=lambda item: (item[0], -item[1]))
    margin = winner[0] - loser[0]
    if margin < rules.min_margin or margin == 0:
        return None
    if rules.min_winner_score is not None and winner[0] < rules.min_winner_score:
        return None
    return winner[1], loser[1]


@given(
    groups=st.lists(st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=1, max_size=6), min_size=1, max_size=8),
    margin=st.integers(0, 3),
    limits=st.sampled_from([None, (1, 5), (2, 2)]),
    first=st.sampled_from([None, 2, 4]),
    least=st.sampled_from([None, 3, 5]),
)
def test_the_pair_of_each_row_is_that_of_the_rules_one_by_one(groups, margin, limits, first, least):
    rules = PairRules(margin, limits, None, first, least)
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    places = np.concatenate([np.arange(len(group)) for group in groups])
    flat = [score for group in groups for score in group]
    usable = np.array([score is not None for score in flat])
    scores = np.array([score or 0 for score in flat], dtype=float)
    winners, losers = best_and_worst(rows, places, scores, usable, rules)
    found = {int(rows[at]): (int(places[at]), int(places[low])) for at, low in zip(winners, losers, strict=True)}
    wanted = {i: pair for i, group in enumerate(groups) if (pair := pair_by_row(group, rules))}
    assert found == wanted


def test_bad_rows_are_named_left_out_and_counted(tmp_path, caplog):
    rows = [
        row(["a", "b"], [9.0, 1.0]),
        row(["a", "b"], [9.0, float("nan")]),
        row(["a", "b"], [9.0]),
        row(None, [9.0, 1.0]),
        row([], []),
        row(["a", None, "c"], [9.0, 1.0, None]),
        row(["a", "b"], [float("inf"), 1.0]),
        row(["a", "b", "c"], [None, 2.0, 8.0]),
        row(["a", "b"], [9.0, 1.0], trg_lang=None),
    ]
    report, found = written(tmp_path, rows)
    assert sorted((pair["winner_text"], pair["loser_text"]) for pair in found) == [("a", "b"), ("c", "b")]
    assert [rejected.row for rejected in report.conversion.rejected] == [2, 3, 4, 5, 7, 9]
    assert [rejected.reason for rejected in report.conversion.rejected] == [
        "en2de.parquet: sc holds a value that is not a finite number",
        "en2de.parquet: 2 texts but 1 scores",
        "en2de.parquet: mts is not a list",
        "en2de.parquet: no candidates",
        "en2de.parquet: sc holds a value that is not a finite number",
        "en2de.parquet: trg_lang is not text",
    ]
    assert report.n_unscored == 3
    assert "3 candidates without a score passed over" in report.summary()
    assert "en2de.parquet row 2 left out" in caplog.text


def test_half_floats_are_scores(tmp_path):
    table = pa.Table.from_pylist([row(["a", "b"], [9.0, 1.0]), row(["a", "b"], [9.0, float("nan")])])
    halves = table["sc"].cast(pa.list_(pa.float16()))
    (tmp_path / "in").mkdir()
    pq.write_table(table.set_column(table.schema.get_field_index("sc"), "sc", halves), tmp_path / "in/en2de.parquet")
    report = write_pairs(tmp_path / "in", tmp_path / "pairs.parquet", mt_texts_key="mts", score_key="sc")
    assert pq.read_table(tmp_path / "pairs.parquet")["winner_score"].to_pylist() == [9.0]
    assert [rejected.row for rejected in report.conversion.rejected] == [2]


def test_a_pair_of_equal_scores_is_none_and_a_file_without_pairs_is_no_error(tmp_path):
    ties = [row(["a", "b"], [5.0, 5.0])]
    _, found = written(tmp_path, ties, PairRules(min_margin=0), de2en=[row(["x", "y"], [1.0, 1.5])])
    assert [(pair["winner_text"], pair["loser_text"]) for pair in found] == [("y", "x")]


def test_no_pair_at_all_is_an_error_that_leaves_no_file(tmp_path):
    with pytest.raises(UserError, match="no pair from 1 rows"):
        written(tmp_path, [row(["a", "b"], [5.0, 5.0])])
    assert not (tmp_path / "pairs.parquet").exists()


def test_pairs_without_languages_are_written_and_counted(tmp_path):
    report, found = written(tmp_path, [row(["a", "b"], [5.0, 1.0])], columns={})
    assert list(found[0]) == [f"{side}_{name}" for side in ("winner", "loser") for name in report_columns()]
    assert report.summary().splitlines()[:2] == ["all sample: 1", "Total samples: 1"]


def report_columns():
    return ("text", "score", "raw_score", "key")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"sc": ["9", "1"]}, "must hold lists of numbers"),
        ({"mts": [1, 2]}, "must hold lists of texts"),
        ({"src_lang": 3}, "must hold text"),
    ],
)
def test_columns_of_other_types_are_an_error(tmp_path, changed, complaint):
    with pytest.raises(UserError, match=complaint):
        written(tmp_path, [row(["a", "b"], [9.0, 1.0]) | changed])


@pytest.mark.parametrize("settings", [{"min_margin": float("nan")}, {"min_margin": -1}, {"valid_score_range": (5, 1)}])
def test_rules_that_cannot_be_met_are_an_error(settings):
    with pytest.raises(UserError):
        PairRules(**settings)
