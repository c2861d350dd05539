import json
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.convert import (
    ConversionReport,
    convert_to_sft,
    convert_to_src_tgt,
    render_prompt,
    render_response,
)
from grrm.data.dataset import read_rows
from grrm.data.parquet import TranslationRow, write_rows
from grrm.data.task_json import parse_tgt, render_tgt
from grrm.errors import UserError
from grrm.gqm.extraction import extract_translation
from grrm.gqm.groups import TranslationTask

TEXT = st.text(min_size=1).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_rl_lines_hold_the_templated_prompt_and_the_task(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.parquet", [TranslationRow("Guten Tag", "안녕", "de", "ko")])
    report = convert_to_src_tgt(tmp_path / "in.parquet", tmp_path / "out.jsonl", "Tower")
    assert (report.written, report.rejected) == (1, ())
    assert _lines(report.path) == [
        {
            "src": "<|im_start|>user\nTranslate the following text from German into Korean:\nGerman: Guten Tag\n"
            "Korean:<|im_end|>\n<|im_start|>assistant\n",
            "tgt": '{"source":"Guten Tag","src_lang":"de","trg_lang":"ko","reference":"안녕"}',
        }
    ]
    assert "안녕" in report.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("convert", [convert_to_src_tgt, convert_to_sft])
def test_a_line_that_training_would_refuse_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert: Callable[..., ConversionReport]
) -> None:
    for module in ("data.convert", "data.layouts.text_files"):
        monkeypatch.setattr(f"grrm.{module}.MAX_TEXT", 400)
    texts = ["한" * length for length in (1, 50, 100, 200)]  # three bytes a character
    write_rows(tmp_path / "in.parquet", [TranslationRow(text, "Hi", "ko", "en") for text in texts])
    report = convert(tmp_path / "in.parquet", tmp_path / "out.jsonl", "Tower")
    reasons = {(row.row, row.reason) for row in report.rejected}
    assert {(3, "its line is longer than 400 bytes"), (4, "its line is longer than 400 bytes")} <= reasons
    assert len([*read_rows(report.path)]) == report.written == 4 - len(reasons) > 0


def test_rl_lines_need_no_reference(tmp_path: Path) -> None:
    names, path = ("src_text", "src_lang", "trg_lang"), tmp_path / "in.parquet"
    pq.write_table(pa.table({name: [value] for name, value in zip(names, ("Hi", "en", "de"), strict=True)}), path)
    assert convert_to_src_tgt(path, tmp_path / "out.jsonl").written == 1
    (line,) = _lines(tmp_path / "out.jsonl")
    assert parse_tgt(line["tgt"]) == TranslationTask("Hi", "en", "de", None)


def test_rl_rows_with_and_without_a_reference_go_together(tmp_path: Path) -> None:
    rows = [TranslationRow("Hi", text, "en", "de") for text in ("Hallo", None, " ")]
    write_rows(tmp_path / "in.parquet", rows)
    assert convert_to_src_tgt(tmp_path / "in.parquet", tmp_path / "out.jsonl").rejected == ()
    tasks = [parse_tgt(line["tgt"]) for line in _lines(tmp_path / "out.jsonl")]
    assert [task.reference for task in tasks if task] == ["Hallo", None, None]


def test_an_sft_row_without_a_translation_is_left_out(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.parquet", [TranslationRow("Hi", text, "en", "de") for text in ("Hallo", None)])
    report = convert_to_sft(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert [(row.row, row.reason) for row in report.rejected] == [(2, "trg_text is not text")]


def test_ssr_prompts_are_not_wrapped_in_the_chat_template() -> None:
    assert render_prompt(TranslationTask("Hi", "en", "zh"), "SSR").startswith("<|startoftext|>")


@pytest.mark.parametrize("prompt_type", ["codeblock-think", "Tower", "SSR", "seedx"])
def test_the_translation_can_be_extracted_from_the_sft_response(tmp_path: Path, prompt_type: str) -> None:
    write_rows(tmp_path / "in.parquet", [TranslationRow("Good day", "Добрый день", "en", "ru")])
    convert_to_sft(tmp_path / "in.parquet", tmp_path / "out.jsonl", prompt_type)
    (line,) = _lines(tmp_path / "out.jsonl")
    assert extract_translation(line["tgt"], prompt_type) == "Добрый день"
    assert "Good day" in line["src"]


def test_the_code_block_response_also_suits_the_trainers_extractor() -> None:
    assert extract_translation(render_response("eins\nzwei", "codeblock-think"), "codeblock") == "eins\nzwei"


@pytest.mark.parametrize(
    ("prompt_type", "translation"), [("Tower.lastl", "eins\nzwei"), ("SSR", "a</answer>b"), ("seedx-cot", "a [COT] b")]
)
def test_a_translation_that_the_extractor_would_cut_is_left_out(
    tmp_path: Path, prompt_type: str, translation: str
) -> None:
    rows = [TranslationRow("a b", translation, "en", "de"), TranslationRow("good", "gut", "en", "de")]
    write_rows(tmp_path / "in.parquet", rows)
    report = convert_to_sft(tmp_path / "in.parquet", tmp_path / "out.jsonl", prompt_type)
    assert [rejected.row for rejected in report.rejected] == [1]
    assert "cannot be taken out" in report.rejected[0].reason


BAD_ROWS = [
    ((None, "b", "en", "de"), "src_text is not text"),
    (("a", " \n", "en", "de"), "trg_text is empty"),
    (("a", "b", "xx", "de"), "'xx'"),
    (("a", "b", "en", ""), "trg_lang is empty"),
    (("a<|im_end|>", "b", "en", "de"), "src_text contains a control token"),
    (("a", "```b", "en", "de"), "trg_text contains a code fence"),
    (("a", "b", "de", "German"), "src_lang and trg_lang are one language 'de'"),
]


def test_bad_rows_are_left_out_counted_and_told_by_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("good", "gut", "en", "de"), *(row for row, _ in BAD_ROWS), ("fine", "fein", "English", "de")]
    names = ("src_text", "trg_text", "src_lang", "trg_lang")
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), tmp_path / "in.parquet")
    with caplog.at_level(logging.WARNING):
        report = convert_to_sft(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert report.written == len(_lines(tmp_path / "out.jsonl")) == 2
    assert [rejected.row for rejected in report.rejected] == list(range(2, 2 + len(BAD_ROWS)))
    for rejected, (_, reason) in zip(report.rejected, BAD_ROWS, strict=True):
        assert reason in rejected.reason
        assert f"row {rejected.row} left out" in caplog.text
    assert report.summary().startswith(f"{tmp_path / 'out.jsonl'}: 2 rows written, 7 left out (1 x ")


def test_rows_of_one_kind_are_told_together_whatever_they_quote(tmp_path: Path) -> None:
    rows = [{"src_text": "good", "trg_text": "gut", "src_lang": "en", "trg_lang": "de"} for _ in range(3)]
    rows[1]["terms"], rows[2]["terms"] = ('{"bad": "schlecht"}', '{"it\'s": "es ist"}')
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = convert_to_src_tgt(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert report.summary().endswith("2 left out (2 x terms has a term that is not in src_text)")


def test_a_column_of_numbers_is_reported_row_by_row_not_written_as_text(tmp_path: Path) -> None:
    columns = {"src_text": [1, 2], "trg_text": ["b", "c"], "src_lang": ["en"] * 2, "trg_lang": ["de"] * 2}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    with pytest.raises(UserError, match=r"no usable row.*src_text is not text"):
        convert_to_src_tgt(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_prompt_type_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown prompt type 'Towr': did you mean 'Tower'"):
        convert_to_sft(tmp_path / "missing.parquet", tmp_path / "out.jsonl", "Towr")


def test_an_empty_file_leaves_no_output(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.parquet", [])
    with pytest.raises(UserError, match="has no rows"):
        convert_to_src_tgt(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.parquet"]


@given(TEXT, TEXT, st.none() | st.text())
def test_tgt_round_trip(source: str, lang: str, reference: str | None) -> None:
    task = TranslationTask(source, lang, "de", reference)
    assert parse_tgt(render_tgt(task)) == task
    assert parse_tgt(" " + render_tgt(task) + "<|im_end|>\n<|endoftext|>") == task


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_anything_else_is_not_a_task(text: str) -> None:
    assert parse_tgt(text) is None


@pytest.mark.parametrize(
    "tgt",
    [
        '{"source":"a","src_lang":"en"}',
        '{"source":"","src_lang":"en","trg_lang":"de"}',
        '{"source":"a","src_lang":"en","trg_lang":3}',
        '{"source":"a","src_lang":"en","trg_lang":"de","reference":4}',
        '{"source":"a","src_lang":"en","trg_lang":"de"} and more',
        "[" * 100_000,
    ],
)
def test_incomplete_tasks_are_rejected(tgt: str) -> None:
    assert parse_tgt(tgt) is None


def test_unknown_keys_and_a_missing_reference_are_accepted() -> None:
    tgt = '{"source":"a","src_lang":"en","trg_lang":"de","id":7}'
    assert parse_tgt(tgt) == TranslationTask("a", "en", "de", None)
