import json
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from grrm.cli import grrm
from grrm.data.convert import ConversionReport, parse_tgt
from grrm.data.converters.dataset_info import enter_dataset
from grrm.data.converters.rl_gqm import convert_rl_gqm
from grrm.data.converters.rl_mt import convert_rl_mt
from grrm.data.converters.sft_gqm import convert_sft_gqm, without_verdict
from grrm.data.converters.sft_mt import convert_sft_mt
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import TOWER_LANGS
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import gqm_prompt

STORED = Path(__file__).parents[1] / "golden/data/parquet"
Converter = Callable[..., ConversionReport]
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def converted(convert: Converter, rows: list[Row], folder: Path, **settings: Any) -> list[Row]:
    return rows_of(convert(write(folder / "in.parquet", rows), folder / "out.parquet", **settings))


def rows_of(report: ConversionReport) -> list[Row]:
    rows: list[Row] = pq.read_table(report.path).to_pylist()
    assert len(rows) == report.written
    return rows


def group(**changed: Any) -> Row:
    row = {"src_text": "Hi", "src_lang": "en", "trg_lang": "de", "mt_texts": ["a", "b", "c"], "scores": [3, 9, 9]}
    return row | {"analysis": "They differ."} | changed


def pair(**changed: Any) -> Row:
    row = {"src_text": "Hi", "trg_text": "Hallo", "src_lang": "en", "trg_lang": "de", "response": "```\nHallo\n```"}
    return row | changed


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
    "src_lang: Language code 'xx' is not one of": group(src_lang="xx"),
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
}


@pytest.mark.parametrize("convert", [convert_sft_gqm, convert_rl_gqm])
def test_every_bad_group_is_left_out_and_reported_with_its_row_number(
    tmp_path: Path, convert: Converter, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [group(), *GROUP_FAULTS.values(), group(src_text="last")]
    source = write(tmp_path / "in.parquet", rows)
    report = convert(source, tmp_path / "out.parquet")
    assert report.written == 2
    assert [row.row for row in report.rejected] == list(range(2, len(rows)))
    for rejected, reason in zip(report.rejected, GROUP_FAULTS, strict=True):
        assert rejected.reason.startswith(reason.strip())
        assert f"row {rejected.row} left out: {reason.strip()}" in caplog.text
    assert f"{len(GROUP_FAULTS)} left out" in report.summary()


@pytest.mark.parametrize("convert", [convert_sft_mt, convert_rl_mt])
def test_row_numbers_count_on_over_batches(tmp_path: Path, convert: Converter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grrm.data.converters.intake.ROWS_PER_BATCH", 3)
    monkeypatch.setattr("grrm.data.converters.shuffled.ROWS_PER_BATCH", 2)
    rows = [pair(src_text=f"text {number}") for number in range(10)]
    rows[1]["src_text"] = rows[7]["src_text"] = ""
    report = convert(write(tmp_path / "in.parquet", rows), tmp_path / "out.parquet")
    assert [row.row for row in report.rejected] == [2, 8]
    texts = Counter(
        row["messages" if "messages" in row else "prompt"][0]["content"].split("\n")[4] for row in rows_of(report)
    )
    assert texts == Counter(row["src_text"] for row in rows if row["src_text"])


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


@pytest.mark.parametrize("source", ["100 % {x} \\n", "two\nlines", "``` fence", " padded ", "\0"])
def test_prompts_of_a_column_are_the_prompts_of_its_texts(tmp_path: Path, source: str) -> None:
    rows = [pair(src_text=f"{source}x", src_lang=src, trg_lang="fr") for src in ("en", "German", "uk")]
    prompts = {row["prompt"][0]["content"] for row in converted(convert_rl_mt, rows, tmp_path)}
    assert prompts == {mt_prompt(row["src_text"], row["src_lang"], row["trg_lang"]) for row in rows}


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
        ({"prompt_type": "score"}, "prompt_type 'score' cannot be used here: use one of ranking, ranking_score"),
        ({"prompt_type": "best"}, "prompt_type 'best' is not a GQM prompt"),
        ({"shuffle_augment": -1}, "must be 0 or more"),
        ({"mt_key": "scores"}, "must name three columns"),
        ({"seed": -1}, "seed -1 is not from 0 to 4294967295"),
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


def lines_of(convert: Converter, rows: list[Row], folder: Path, **settings: Any) -> list[Row]:
    report = convert(write(folder / "in.parquet", rows), folder / "out.jsonl", **settings)
    return [json.loads(line) for line in report.path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_jsonl_output_holds_the_templated_prompt_and_what_training_needs(tmp_path: Path) -> None:
    (sft,) = lines_of(convert_sft_mt, [pair(trg_lang="zh", response=" 你好\n")], tmp_path)
    assert sft == {"src": render_chatml(mt_prompt("Hi", "en", "zh")), "tgt": "你好"}
    assert "你好" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    (ranked,) = lines_of(convert_rl_gqm, [group()], tmp_path)
    assert ranked["tgt"] == '{"A": 3, "B": 9, "C": 9}'
    assert ranked["src"] == render_chatml(gqm_prompt("Hi", ["a", "b", "c"], "en", "de"))


def test_jsonl_tasks_can_be_read_back_with_and_without_reference(tmp_path: Path) -> None:
    lines = lines_of(convert_rl_mt, [pair()], tmp_path, cross_lingual=True)
    tasks = [parse_tgt(line["tgt"]) for line in lines]
    assert TranslationTask("Hi", "en", "de", "Hallo") in tasks
    assert sorted(task is not None and task.reference is None for task in tasks) == [False, True]


def test_an_output_of_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out.json ends neither with .parquet nor with .jsonl"):
        convert_sft_mt(write(tmp_path / "in.parquet", [pair()]), tmp_path / "out.json")


def test_dataset_info_keeps_the_other_entries(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text('{"other": {"file_name": "x.json"}}')
    source = write(tmp_path / "in.parquet", [pair()])
    arguments = ["data", "sft-mt", str(source), str(tmp_path / "cot.parquet"), "--llama-factory"]
    assert CliRunner().invoke(grrm, arguments).exception is None
    entries = json.loads((tmp_path / "dataset_info.json").read_text())
    assert entries["other"] == {"file_name": "x.json"}
    assert entries["cot"]["file_name"] == "cot.parquet"
    assert entries["cot"]["formatting"] == "sharegpt"
    (message, _) = rows_of(ConversionReport(tmp_path / "cot.parquet", 1, ()))[0]["messages"]
    tags = entries["cot"]["tags"]
    assert message[tags["role_tag"]] == tags["user_tag"]
    assert message[tags["content_tag"]].startswith("Translate")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.parquet", "{", "cannot be read as JSON"),
        ("a.parquet", "[]", "does not hold a JSON object"),
        ("a.jsonl", "{}", "cannot be entered into dataset_info.json"),
    ],
)
def test_a_dataset_info_that_cannot_be_extended_is_left_as_it_is(
    tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    (tmp_path / "dataset_info.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        enter_dataset(tmp_path / name)
    assert (tmp_path / "dataset_info.json").read_text() == content


COMMANDS = {
    "sft-gqm": (group(), ["--prompt-type", "score", "--add-example", "--llama-factory"], 1),
    "rl-gqm": (group(), ["--subgroup-augment", "1", "--shuffle-augment", "1"], 4),
    "sft-mt": (pair(), ["--response-key", "trg_text"], 1),
    "rl-mt": (pair(), ["--cross-lingual", "--testset"], 2),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_convert_and_say_what_they_wrote(tmp_path: Path, command: str) -> None:
    row, options, count = COMMANDS[command]
    source, out = write(tmp_path / "in.parquet", [row]), tmp_path / "new" / "out.parquet"
    result = CliRunner().invoke(grrm, ["data", command, str(source), str(out), *options])
    assert result.exception is None, result.output
    assert f"{out}: {count} rows written, 0 left out" in result.output
    assert pq.read_metadata(out).num_rows == count
