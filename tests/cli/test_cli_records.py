"""What commands read and write: bad rows named by number, files whole or not there, text shown as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import refusal

from grrm import cli
from grrm.cli import judge_options
from grrm.cli.records import (
    Records,
    check_lengths,
    count,
    languages,
    optional,
    read_records,
    scores,
    text,
    text_or_none,
    texts,
    usable_rows,
)
from grrm.cli.results import json_line, result_sink, show_table
from grrm.errors import UserError
from grrm.evaluation.ranking import GoldTieRule, TieRule, UnscoredRule
from grrm.judges.registry import judge_names
from grrm.judges.spec import SPECS
from grrm.judges.text_metric import METRICS
from grrm.tracking.console import printable

TYPES = {"new": pa.int64()}


def records(*rows: dict) -> Records:
    return Records("rows.jsonl", list(rows))


def test_choices_on_the_command_line_are_those_there_are():
    rank = {parameter.name: parameter.type for parameter in cli.grrm.commands["rank"].params}
    ranking = {parameter.name: parameter.type for parameter in cli.grrm.commands["eval"].commands["ranking"].params}
    assert [item.value for item in rank["judge"].shell_complete(None, None, "r")] == [
        name for name in judge_names() if name.startswith("r")
    ]
    assert tuple(METRICS) == judge_options.METRICS
    known = {(spec.needs, name) for spec in SPECS.values() for name in spec.options.model_fields}
    assert {(needs, judge_options.OPTION_OF.get(flag, flag)) for flag, needs in judge_options.FLAGS.items()} <= known
    words = {word for one in cli.grrm.commands["rank"].params for word in one.opts}
    assert {f"--{flag.replace('_', '-')}" for flag in judge_options.FLAGS} <= words
    for name, rule in (("ties", TieRule), ("unscored", UnscoredRule), ("gold_ties", GoldTieRule)):
        assert tuple(ranking[name].choices) == get_args(rule)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows"),
        (b"{}\n[]\n", "line 2 is not a JSON object"),
        (b'{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"{" * 100_000, "line 1 is not JSON"),
    ],
)
def test_files_that_cannot_be_read_are_one_sentence(tmp_path, content, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_records(path).column("a", optional(count), "a number")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.txt"])
def test_a_missing_file_is_one_sentence(tmp_path, name):
    with pytest.raises(UserError, match=rf"{name} (cannot be read|does not exist)"):
        read_records(tmp_path / name, dict)


def test_a_damaged_parquet_file_is_one_sentence(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"src_text": ["a" * 1000] * 10}), path, compression="none")
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read to its end"):
        read_records(path)


def test_other_files_are_text_only_where_text_has_a_meaning(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\ufeffeins\u2028zwei\r\ndrei\n", encoding="utf-8")
    assert read_records(path, lambda line: {"src_text": line}).rows == [
        {"src_text": "eins\u2028zwei"},
        {"src_text": "drei"},
    ]
    with pytest.raises(UserError, match=r"rows\.txt is no file of rows"):
        read_records(path)
    path.write_text("eins\n \nzwei\n")
    records = read_records(path, lambda line: {"src_text": line})
    with pytest.raises(UserError, match="line 2 is empty"):
        records.column("src_text", text, "text")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (text, None),
        (text, " "),
        (text, 3),
        (text_or_none, 3),
        (texts, "a"),
        (texts, ["a", 3]),
        (scores, 3),
        (scores, [True]),
        (scores, ["3"]),
        (scores, [float("nan")]),
        (scores, [float("inf")]),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(check, value):
    with pytest.raises(UserError, match=r"rows\.jsonl row 1: column a holds .*; it must be right"):
        records({"a": value}).column("a", check, "right")


def test_the_row_that_is_named_is_the_first_that_is_wrong():
    with pytest.raises(UserError, match="row 2"):
        records({"a": "b"}, {"a": 3}, {"a": 4}).column("a", text, "right")


def test_of_bad_rows_alike_one_is_described_and_others_are_counted(caplog):
    records = Records("file", [{"n": 1}, {"n": "x"}, {}, *({"n": f"y{i}"} for i in range(12)), {}])
    usable = usable_rows(records, [("n", count, "a number of tokens")], "not judged")
    assert (usable.numbers, usable.reasons) == ([1], {"n is not a number of tokens": 13, "n is missing": 2})
    assert [record.getMessage() for record in caplog.records] == [
        "not judged: file row 2: column n holds 'x'; it must be a number of tokens "
        "(and 12 more: 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, …)",
        "not judged: file row 3: column n is missing; it must be a number of tokens (and 1 more: 16)",
    ]


def test_a_column_that_is_missing_is_called_missing():
    with pytest.raises(UserError, match="row 1: column src_lang is missing; it must be a language"):
        languages(records({"src_text": "a"}), "src_lang", None)
    rows = records({}, {"src_lang": "fr"})
    assert languages(rows, "src_lang", "de") == ["de", "de"]
    assert rows.rows == [{"src_lang": "de"}] * 2
    with pytest.raises(UserError, match="unknown language 'xx'"):
        languages(records({"src_lang": "xx"}), "src_lang", None)


def test_a_users_own_columns_are_named_where_ours_are_missing(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("\ufeffenglish,translation\nHello,Hallo\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_records(path).column("src_text", text, "text")
    assert str(caught.value) == (
        f"{path} row 1: column src_text is missing; it must be text (columns: english, translation; rename them with "
        "`grrm data convert --to rows`)"
    )


def test_lists_of_different_lengths_are_named_with_their_row():
    with pytest.raises(UserError, match="row 2: a and b have 2 and 1 entries"):
        check_lengths(records({}, {}), 2, "a and b", [[1, 2], [1]])
    check_lengths(records({}, {}), 2, "a and b", [[1], [2]])


def write(out: Path | None, rows: Records, **columns: list) -> None:
    with result_sink(out, rows, TYPES, lambda _: None) as sink:
        sink(columns)


def test_a_results_own_columns_never_replace_the_inputs(tmp_path):
    with pytest.raises(UserError, match="has a column new already"):
        write(tmp_path / "out.jsonl", records({"new": 1}), new=[2])


def test_paths_are_refused_before_the_work_begins(tmp_path):
    def work() -> None:
        raise AssertionError("the work began")

    (tmp_path / "file").touch()
    for out, message in (("out.csv", r"must end in \.jsonl or \.parquet"), ("file/out.jsonl", "cannot write")):
        with pytest.raises(UserError, match=message), result_sink(tmp_path / out, records({}), TYPES, lambda _: None):
            work()


def test_work_that_fails_leaves_what_was_there(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with pytest.raises(ZeroDivisionError), result_sink(out, records({}), TYPES, lambda _: None):
        _ = 1 // 0
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.jsonl", "old")]


def test_columns_without_one_type_are_refused_in_parquet_and_kept_in_json(tmp_path):
    rows = records({"odd": 1}, {"odd": "a"}, {})
    with pytest.raises(UserError, match=r"column odd cannot be written .* as one type; write a \.jsonl file"):
        write(tmp_path / "out.parquet", rows, new=[1, 2, 3])
    write(tmp_path / "out.jsonl", rows, new=[1, 2, 3])
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [{"odd": 1, "new": 1}, {"odd": "a", "new": 2}, {"new": 3}]


def test_types_of_a_parquet_file_stay_as_they_are(tmp_path):
    schema = pa.schema([("empty", pa.string()), ("small", pa.int8())])
    pq.write_table(pa.Table.from_pylist([{"empty": None, "small": 3}], schema=schema), tmp_path / "in.parquet")
    write(tmp_path / "out.parquet", read_records(tmp_path / "in.parquet"), new=[None])
    found = pq.read_schema(tmp_path / "out.parquet")
    assert {field.name: field.type for field in found} == {"empty": pa.string(), "small": pa.int8(), "new": pa.int64()}


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.text(st.characters()), st.floats(allow_nan=False))))
def test_a_line_of_json_is_read_back_as_it_was(row):
    line = json_line(row)
    assert line.count(b"\n") == 1
    assert json.loads(line.decode()) == row


@given(st.text(st.characters()))
def test_what_is_shown_is_one_printable_line(cell):
    assert printable(cell).isprintable()


def test_off_a_terminal_a_table_is_plain_text(capsys):
    show_table("Title", ["name", "value #"], [["[b]a[/b]", "1"], None, ["c\x1b[31m", "22"]], ["a note"])
    assert capsys.readouterr().out == "Title\nname      value\n[b]a[/b]  1\nc [31m    22\na note\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["rank", "rows.txt", "--src-lang", "de", "--trg-lang", "en"],
            "checkpoint with --model, or a server with --url",
        ),
        (["rank", "rows.txt", "--trg-lang", "en", "--model", "x"], "column src_lang is missing"),
        (["rank", "rows.txt", "--src-lang", "xx", "--trg-lang", "en", "--model", "x"], "unknown language 'xx'"),
        (["rank", "bare.txt", "--src-lang", "de", "--trg-lang", "en", "--model", "x"], "line 1 holds no candidate"),
        (["translate", "rows.txt", "--src-lang", "de", "--trg-lang", "en", "--model", "x"], "'x' does not exist"),
        (
            ["translate", "rows.txt", "--src-lang", "de", "--trg-lang", "en", "--model", "x", "--deadline", "9"],
            "--deadline has no effect, as the backend is paddle",
        ),
        (
            ["rank", "rows.txt", "--src-lang", "de", "--trg-lang", "en", "--url", "http://h:1", "--prompt-length", "9"],
            "needs the folder of the tokenizer",
        ),
        (["rank", "rows.txt", "--url", "h:1", "--src-lang", "de", "--trg-lang", "en"], "generation server URL 'h:1'"),
        (["translate", "rows.txt", "--temperature", "-1"], "is not in the range"),
        (["eval", "ranking", "rows.txt"], "rows.txt is no file of rows"),
    ],
)
def test_bad_command_lines_are_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text("Hallo\tHello\tBye\n")
    Path("bare.txt").write_text("Hallo\n")
    assert message in refusal(*arguments)


def test_without_paddle_a_checkpoint_is_one_sentence_that_names_the_other_way(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.engine.options.find_spec", lambda name: None)
    (tmp_path / "rows.txt").write_text("Hallo\n")
    told = refusal("translate", tmp_path / "rows.txt", "--src-lang", "de", "--trg-lang", "en", "--model", tmp_path)
    assert "pip install 'paddle-grrm[cpu]'`, on a GPU `paddle-grrm[gpu]` (docs/install.md)" in told
    assert told.rstrip().endswith("or name a server with --url")


@pytest.mark.parametrize("values", [(1, "x"), ({}, {}), (2**70, 1), ("\ud800", "a")])
def test_input_that_parquet_cannot_hold_is_refused_before_the_work_and_not_after_it(tmp_path, values):
    records = Records("rows.jsonl", [{"a": value} for value in values])
    with (
        pytest.raises(UserError, match=r"cannot be written to .*out\.parquet.*write a \.jsonl file"),
        result_sink(tmp_path / "out.parquet", records, TYPES, print),
    ):
        pytest.fail("the work was done for nothing")
    assert not list(tmp_path.iterdir())
