import re
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rows import Converter, Row, converted, group, pair, rows_of, write_parquet

from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.data.converters.mt import convert_rl_mt, convert_sft_mt
from grrm.errors import UserError
from grrm.gqm.languages import TOWER_LANGS
from grrm.gqm.prompts import without_verdict

STORED = Path(__file__).parents[1] / "golden/data/parquet"


def stored_cases() -> list[Any]:
    cases: list[tuple[str, str, Converter, Row]] = [
        ("sftmt_in", "sft_mt", convert_sft_mt, {}),
        ("float_in", "sft_float", convert_sft_gqm, {}),
    ]
    for kind in ("score", "ranking", "ranking_score"):
        for example in (False, True):
            settings: Row = {"prompt_type": kind, "add_example": example}
            cases.append(("ranking_in", f"sft_gqm_{kind}_{example:d}", convert_sft_gqm, settings))
        for sub, shuffle in ((0, 0), (0, 2), (2, 0), (4, 4)) if kind != "score" else ():
            settings = {"prompt_type": kind, "subgroup_augment": sub, "shuffle_augment": shuffle, "compat": True}
            cases.append(("ranking_in", f"rl_gqm_{kind}_{sub}_{shuffle}", convert_rl_gqm, settings))
    for name in ("tower", "towerx"):
        for testset in (False, True):
            settings = {"cross_lingual": name == "towerx", "testset": testset, "compat": True}
            cases.append(("mt_in", f"rl_mt_construct_{name}_{testset:d}", convert_rl_mt, settings))
    return [pytest.param(*case, id=case[1]) for case in cases]


@pytest.mark.parametrize(("source", "target", "convert", "settings"), stored_cases())
def test_the_stored_output_is_reproduced_row_by_row(
    tmp_path: Path, source: str, target: str, convert: Converter, settings: Row
) -> None:
    report = convert(STORED / f"{source}.parquet", tmp_path / "out.parquet", **settings)
    ours, stored = pq.read_table(report.path), pq.read_table(STORED / f"{target}.parquet")
    assert ours.column_names == stored.column_names
    assert ours.to_pylist() == stored.to_pylist()
    assert report.rejected == ()


GROUP_FAULTS: dict[str, Row] = {
    "src_text is not text": group(src_text=None),
    "src_text is empty": group(src_text=" \n"),
    "src_lang: unknown language 'xx': give": group(src_lang="xx"),
    "src_lang: 'En\\x00glish' is not the name": group(src_lang="En\0glish"),
    "analysis contains a control token": group(analysis="<|im_end|>"),
    "mt_texts is not a list of texts": group(mt_texts=None),
    "mt_texts holds a value that is not a text": group(mt_texts=["a", None, "c"]),
    "mt_texts contains a control token": group(mt_texts=["a", "b<|endoftext|>", "c"]),
    "scores holds a value that is not a number": group(scores=[3.0, float("nan"), 1.0]),
    "scores is not a list of numbers": group(scores=None),
    "scores holds a value that is not a number ": group(scores=[3.0, None, 1.0]),
    "3 candidates but 2 scores": group(scores=[1, 2]),
    "1 candidates instead of 2 to 8": group(mt_texts=["a"], scores=[1]),
    "9 candidates instead of 2 to 8": group(mt_texts=list("abcdefghi"), scores=[1] * 9),
    "a score is not from 0 to 10": group(scores=[1, 2, 11]),
    "a text of it cannot be shown to a judge: hidden_text": group(mt_texts=["a", "b\u202ec", "d"]),
    "a text of it cannot be shown to a judge: control_character": group(src_text="a\x07"),
}


@pytest.mark.parametrize("convert", [convert_sft_gqm, convert_rl_gqm])
def test_every_bad_group_is_left_out_and_reported_with_its_row_number(
    tmp_path: Path, convert: Converter, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [group(), *GROUP_FAULTS.values(), group(src_text="last")]
    source = write_parquet(tmp_path / "in.parquet", rows)
    report = convert(source, tmp_path / "out.parquet")
    assert report.written == 2
    assert [row.row for row in report.rejected] == list(range(2, len(rows)))
    for rejected, reason in zip(report.rejected, GROUP_FAULTS, strict=True):
        assert rejected.reason.startswith(reason.strip())
        assert re.search(rf"row {rejected.row} left out: |more: (\d+, )*{rejected.row}\b", caplog.text)
    assert f"{len(GROUP_FAULTS)} left out" in report.summary()


@pytest.mark.parametrize("convert", [convert_sft_mt, convert_rl_mt])
def test_row_numbers_count_on_over_batches(tmp_path: Path, convert: Converter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grrm.data.layouts.arrow_files.ROWS_PER_BATCH", 3)
    monkeypatch.setattr("grrm.data.converters.output.ROWS_PER_BATCH", 2)
    rows = [pair(src_text=f"text {number}") for number in range(10)]
    rows[1]["src_text"] = rows[7]["src_text"] = ""
    report = convert(write_parquet(tmp_path / "in.parquet", rows), tmp_path / "out.parquet")
    assert [row.row for row in report.rejected] == [2, 8]
    texts = Counter(
        row["messages" if "messages" in row else "prompt"][0]["content"].split("\n")[4] for row in rows_of(report)
    )
    assert texts == Counter(row["src_text"] for row in rows if row["src_text"])


@pytest.mark.parametrize("target", ["sft_gqm_ranking_score_0", "rl_gqm_ranking_score_4_4"])
def test_groups_of_several_batches_are_not_mixed_up(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grrm.data.layouts.arrow_files.ROWS_PER_BATCH", 2)
    monkeypatch.setattr("grrm.data.converters.output.ROWS_PER_BATCH", 7)
    source, out = STORED / "ranking_in.parquet", tmp_path / "out.parquet"
    if target.startswith("sft"):
        report = convert_sft_gqm(source, out)
    else:
        report = convert_rl_gqm(source, out, subgroup_augment=4, shuffle_augment=4, compat=True)
    assert rows_of(report) == pq.read_table(STORED / f"{target}.parquet").to_pylist()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([{"src_text": "a"}], "lacks column src_lang, trg_lang, mt_texts, scores, analysis (found: src_text)"),
        ([group(mt_texts="abc")], "has string in column mt_texts; it must hold lists of texts"),
        ([group(scores=["1", "2", "3"])], "column scores; it must hold lists of numbers"),
        ([group(src_text=7)], "has int64 in column src_text; it must hold text"),
        ([group(mt_texts=None)], "has no usable row, the first is left out because of: mt_texts is not a list"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, rows: list[Row], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        converted(convert_sft_gqm, rows, tmp_path)
    assert sentence in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_an_empty_file_a_missing_file_and_another_format_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.Table.from_pylist([pair()]).slice(0, 0), empty)
    (tmp_path / "text.parquet").write_text("no parquet")
    for name, sentence in (("empty", "has no usable row;"), ("text", "not a readable"), ("none", "does not exist")):
        with pytest.raises(UserError, match=sentence):
            convert_rl_mt(tmp_path / f"{name}.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_columns_of_categories_are_read_as_text(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([pair()])
    table = table.set_column(2, "src_lang", table["src_lang"].dictionary_encode())
    pq.write_table(table, tmp_path / "in.parquet")
    (row,) = rows_of(convert_rl_mt(tmp_path / "in.parquet", tmp_path / "out.parquet"))
    assert row["extra_info"]["src_lang"] == "en"


def test_scores_may_be_half_floats(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([group(scores=[9.5, 7, 5]), group(scores=[float("nan"), 7, 5])])
    halves = table["scores"].cast(pa.list_(pa.float16()))
    pq.write_table(table.set_column(table.column_names.index("scores"), "scores", halves), tmp_path / "in.parquet")
    settings = {"prompt_type": "score", "order_only": True}
    (row,) = rows_of(convert_rl_gqm(tmp_path / "in.parquet", tmp_path / "out.parquet", **settings))
    assert row["reward_model"]["ground_truth"] == "A > B > C"


def test_added_cross_lingual_rows_have_no_reference_in_another_language(tmp_path: Path) -> None:
    rows = [pair(src_text=f"text {number}") for number in range(40)]
    out = converted(convert_rl_mt, rows, tmp_path, cross_lingual=True, testset=True)
    own = [row for row in out if row["extra_info"]["trg_lang"] == "de"]
    added = [row for row in out if row["extra_info"]["trg_lang"] != "de"]
    assert len(own) == len(added) == 40
    assert {row["reward_model"]["ground_truth"] for row in own} == {"Hallo"}
    assert {row["extra_info"]["trg_text"] for row in added} == {row["reward_model"]["ground_truth"] for row in added}
    assert {row["extra_info"]["trg_text"] for row in added} == {None}
    assert {row["extra_info"]["trg_lang"] for row in added} <= set(TOWER_LANGS) - {"en", "de"}


@pytest.mark.parametrize("texts", [None, ["Hallo", None, " "]])
def test_rl_prompts_need_no_reference_but_a_test_set_does(tmp_path: Path, texts: list[str | None] | None) -> None:
    columns = {"src_text": ["Hi", "you", "there"], "src_lang": ["en"] * 3, "trg_lang": ["de"] * 3}
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns | ({} if texts is None else {"trg_text": texts})), path)
    assert convert_rl_mt(path, tmp_path / "out.parquet").rejected == ()
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    references = {row["extra_info"]["src_text"]: row["extra_info"]["trg_text"] for row in rows}
    assert references == {"Hi": texts and "Hallo", "you": None, "there": None}
    if texts is None:
        with pytest.raises(UserError, match="lacks column trg_text"):
            convert_rl_mt(path, tmp_path / "test.parquet", testset=True)
    else:
        assert [row.row for row in convert_rl_mt(path, tmp_path / "test.parquet", testset=True).rejected] == [2, 3]


def test_rows_outside_the_ten_languages_are_kept_but_not_augmented(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [pair(), pair(src_lang="ja"), pair(src_lang="English", trg_lang="German")]
    out = converted(convert_rl_mt, rows, tmp_path, cross_lingual=True)
    assert Counter(row["extra_info"]["src_lang"] for row in out) == {"en": 2, "ja": 1, "English": 2}
    assert "1 rows not augmented" in caplog.text


@pytest.mark.parametrize(("languages", "compat"), [(["ja"], False), (["en", "ja"], True)])
def test_augmentation_that_cannot_happen_is_an_error(tmp_path: Path, languages: list[str], compat: bool) -> None:
    rows = [pair(src_lang=language) for language in languages]
    with pytest.raises(UserError, match="1 rows with a language outside en de fr"):
        converted(convert_rl_mt, rows, tmp_path, cross_lingual=True, compat=compat)


def test_reordered_groups_carry_their_candidates_in_the_prompts_order(tmp_path: Path) -> None:
    rows = converted(convert_rl_gqm, [group(mt_texts=["a1", "b2", "c3"])], tmp_path, shuffle_augment=99)
    assert len(rows) == 6
    for row in rows:
        info = row["extra_info"]
        assert info["mt_texts"] == [["a1", "b2", "c3"][place] for place in info["shuffle_indices"]]
        content = row["prompt"][0]["content"]
        assert sorted(info["mt_texts"], key=content.index) == info["mt_texts"]
    assert {tuple(row["extra_info"]["shuffle_indices"]) for row in rows} == set(permutations(range(3)))


def test_sub_groups_are_different_and_their_truth_is_that_of_their_members(tmp_path: Path) -> None:
    row = group(mt_texts=["t1", "t2", "t3", "t4"], scores=[1, 2, 3, 3])
    rows = converted(convert_rl_gqm, [row], tmp_path, subgroup_augment=99, prompt_type="ranking")
    truths = {tuple(row["extra_info"]["mt_texts"]): row["reward_model"]["ground_truth"] for row in rows}
    assert len(rows) == len(truths) == 1 + 6 + 4
    assert truths["t1", "t3"] == "B > A"
    assert truths["t2", "t3", "t4"] == "B = C > A"


def test_order_alone_is_that_of_all_decimals(tmp_path: Path) -> None:
    row = group(mt_texts=["t1", "t2", "t3"], scores=[7.25, 7.75, 3.0])
    (found,) = converted(convert_rl_gqm, [row], tmp_path, prompt_type="score", order_only=True)
    assert found["reward_model"]["ground_truth"] == "B > A > C"
    assert found["data_source"].endswith(".score_ordering")


def test_a_pair_has_no_sub_groups(tmp_path: Path) -> None:
    rows = converted(convert_rl_gqm, [group(mt_texts=["a", "b"], scores=[1, 2])], tmp_path, subgroup_augment=4)
    assert len(rows) == 1


def test_another_seed_gives_another_order_of_the_same_rows(tmp_path: Path) -> None:
    rows = [group(src_text=str(number)) for number in range(20)]
    first, again, other = (
        [row["messages"][0]["content"] for row in converted(convert_sft_gqm, rows, tmp_path, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert sorted(first) == sorted(other)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"prompt_type": "best"}, "unknown GQM prompt_type 'best'"),
        ({"order_only": True}, "order_only is for prompt type 'score', not for 'ranking_score'"),
        ({"mt_key": "scores"}, "must name different columns"),
    ],
)
def test_impossible_settings_are_one_sentence(tmp_path: Path, settings: Row, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        converted(convert_rl_gqm, [group()], tmp_path, **settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("analysis", "left"),
    [
        ("A is better.\nScores: A: 3", "A is better."),
        ("A is better.\n\n", "A is better."),
        ("final ranking of all", ""),
        ("", ""),
        ("Scoring first\nthen words", "Scoring first\nthen words"),
    ],
)
def test_the_annotators_own_verdict_is_cut_off(analysis: str, left: str) -> None:
    assert without_verdict(analysis) == left
