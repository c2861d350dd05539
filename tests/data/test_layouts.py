"""The same rows in every layout that a user may have them in, and what is said about files that are damaged."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from data.layout_files import (
    DICTS,
    LAYOUTS,
    ROWS,
    TABLE,
    comma_separated,
    feather,
    json_lines,
    json_list,
    lines_of_two_files,
    memory,
    nested_column,
    parquet,
    tab_separated,
    xliff_2,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.command_line import invoke, refusal
from support.rows import write_jsonl

from grrm import small_files
from grrm.cli.records import read_records
from grrm.data.convert import convert_to_rows, convert_to_src_tgt
from grrm.data.converters.gqm import convert_sft_gqm
from grrm.data.converters.intake import read_usable
from grrm.data.held_out import hold_out
from grrm.data.layouts import text_files
from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import RowTable, in_batches
from grrm.data.layouts.text_files import lines_of
from grrm.data.layouts.user_rows import COLUMNS, UserRows
from grrm.data.parquet import iter_raw_rows, read_rows
from grrm.errors import UserError


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rows_of_every_layout_are_the_same(layout, tmp_path):
    rows = layout(tmp_path)
    assert [values for _, values in iter_raw_rows(rows)] == ROWS
    assert [number for number, _ in iter_raw_rows(rows)] == [1, 2, 3, 4]


@pytest.mark.parametrize("layout", [feather, json_list, comma_separated, memory, xliff_2])
def test_commands_read_what_the_converters_read(layout, tmp_path):
    assert read_records(layout(tmp_path).path).rows == DICTS


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.csv", "en,de\na,b\n", {}, r"lacks column src_text.* \(found: en, de\).*--columns src_text=YOURS"),
        ("a.csv", "src_text,trg_text\na,b\n", {}, "data convert` on it with --src-lang LANG --trg-lang LANG"),
        ("a.csv", "en,de\na,b\na,b,c\nd\n", {"src_lang": "en", "trg_lang": "de"}, r"row 2 \(3\), row 3 \(1\)"),
        ("a.jsonl", '{"translation": {"en": "a", "de": "b"}}\n', {}, "--src-lang and --trg-lang, which are of en, de"),
        ("a.jsonl", '{"a": 1}\n[]\n', {}, r"lacks column .* \(found: a\)"),
        ("a.jsonl", '{"translation": {"en": "a"}}\n', {"src_lang": "en", "trg_lang": "fr"}, "lacks column trg_text"),
        (
            "a.tsv",
            'en\tde\n"a ""b"""\tc\n',
            {"src_lang": "en", "trg_lang": "de"},
            "has values that are quoted as in CSV",
        ),
        ("a.tsv", 'en\tde\n"a\nb"\tc\n', {"src_lang": "en", "trg_lang": "de"}, "tabs or line breaks need CSV"),
        (
            "a.csv",
            'en,de\na,b\nc,"d\ne,f\n',
            {"src_lang": "en", "trg_lang": "de"},
            r"has a quote that does not end, or text behind one, up to line 4 \(unexpected end of data\); end it",
        ),
        (
            "a.csv",
            'src_text,trg_text,src_lang,trg_lang\n"Hello,Hallo,en,de\nBye,Tsch,en,de\nA "b" c,D "e" f,en,de\n',
            {},
            "has a quote that does not end, or text behind one, up to line 4",
        ),
        ("a.csv", 'en,de\n"a \\"b\\" c",d\n', {"src_lang": "en", "trg_lang": "de"}, "text behind one, up to line 2"),
        ("a.csv", "en,de,de\na,b,c\n", {"src_lang": "en", "trg_lang": "de"}, "several columns de; rename or remove"),
        ("a.json", '"a"', {}, "is not a list of objects"),
        ("a.json", "[1", {}, "is not JSON"),
        ("a.json", '[{"src_text": "\\ud800", "trg_text": "a"}]', {}, "row 1 has '.ud800', half of a character"),
        ("a.arrow", "x", {}, "cannot be read to its end"),
        ("a.tmx", "<tmx>", {}, "is not well-formed XML"),
        (
            "a.tmx",
            '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><tmx>&d;</tmx>',
            {},
            "entity 'b', which is refused",
        ),
        ("a.tmx", '<!DOCTYPE a [<!ENTITY b SYSTEM "/etc/passwd">]><tmx>&b;</tmx>', {}, "entity 'b', which is refused"),
        ("a.tmx", "<a>" * 100, {}, "64 deep"),
        ("a.tmx", "<tmx><tu><tuv xml:lang='en'><seg>a</seg></tuv></tu></tmx>", {}, "give it with --src-lang"),
        (
            "a.tmx",
            '<!DOCTYPE tmx SYSTEM "a.dtd">\n<tmx>&nbsp;</tmx>',
            {},
            "line 2 has the entity 'nbsp', which it does",
        ),
        ("a.tmx", '<?xml version="1.0" encoding="big5"?><tmx/>', {}, "in an encoding that cannot be read .*UTF-8"),
        ("a.tmx", '<?xml version="1.0" encoding="foo"?><tmx/>', {}, "in an encoding that cannot be read .*UTF-8"),
        ("state.json", '{"a": 1}', {}, "is not that of a saved data set; save it again"),
        ("dataset_dict.json", "{}", {}, "is not that of a saved data set; save it again"),
        ("a.xyz", "a\n", {}, "its ending is none of .parquet .*--target"),
        ("a.jsonl", "", {}, "has no rows"),
        ("a.csv", "en\na\n", {"columns": {"src_text": "x"}, "src_lang": "germn"}, "(?s)3 mistakes.*'German'.*names x"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_remedy(name, content, options, message, tmp_path):
    (tmp_path / name).write_text(content)
    of_folder = name in ("state.json", "dataset_dict.json")
    with pytest.raises(UserError, match=message) as caught:
        list(iter_raw_rows(UserRows(tmp_path if of_folder else tmp_path / name, **options)))
    assert name in str(caught.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("text", ["en,de\nday,Tag für Tag\n", "en,für\na,b\n"])
def test_a_table_in_another_encoding_is_told_with_its_remedy(encoding, text, tmp_path):
    (tmp_path / "a.csv").write_text(text, encoding=encoding)
    with pytest.raises(UserError, match=r"a\.csv cannot be read to its end .*; save it as UTF-8"):
        list(iter_raw_rows(UserRows(tmp_path / "a.csv", src_lang="en", trg_lang="de")))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv"])
@pytest.mark.parametrize("shape", ["{}", '"{}"', '"{}\n', '"a\n{}"'])
def test_a_value_that_is_too_long_is_named_by_its_line_with_the_remedy(tmp_path, monkeypatch, ending, shape):
    monkeypatch.setattr("grrm.data.layouts.arrow_files.MAX_TEXT", 4096)
    mark = "\t" if ending == "tsv" else ","
    lines = [f"en{mark}de", *[f"a{mark}b"] * 3, f"{shape.format('x' * 9000)}{mark}b", f"a{mark}b"]
    path = tmp_path / f"a.{ending}"
    with gzip.open(path, "wt") if ending.endswith("gz") else path.open("w") as file:
        file.write("\n".join(lines) + "\n")
    at = 6 if ending == "tsv" and shape.startswith('"a') else 5
    with pytest.raises(UserError, match=rf"has a value of more than 4096 characters in line {at}; shorten it, or end"):
        list(iter_raw_rows(UserRows(path, src_lang="en", trg_lang="de", columns={"src_text": "en", "trg_text": "de"})))


@pytest.mark.parametrize(("name", "joint", "noun"), [("a.jsonl", "{}\n{}\n", "line"), ("a.json", "[{},{}]", "row")])
def test_half_of_a_character_is_told_with_its_line_or_row(name, joint, noun, tmp_path):
    (tmp_path / name).write_text(joint.replace("{}", '{{"a": {}}}').format('"\\ud83d\\ude00"', '["\\ud83d"]'))
    whole, half = open_table(tmp_path / name).read(None)
    assert whole == {"a": "\U0001f600"}
    assert str(half).endswith(rf"{name} {noun} 2 has '\ud83d', half of a character; mend or remove the {noun}")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("cells", [{}, {"mt_texts": ["a", "b"]}, {"mt_texts": ["a", "b"], "scores": [1, 2]}])
def test_a_json_file_of_one_object_is_a_row(cells, indent, tmp_path):
    row = DICTS[0] | cells
    (tmp_path / "a.json").write_text(json.dumps(row, indent=indent))
    assert list(open_table(tmp_path / "a.json").read(None)) == [row]
    (tmp_path / "a.json").write_text(json.dumps({"tags": ["x"], "data": [row, row]}, indent=indent))
    assert list(open_table(tmp_path / "a.json").read(None)) == [row, row]
    (tmp_path / "a.json").write_text(f"\ufeff{json.dumps(row)}\n{json.dumps(row)}")
    assert list(open_table(tmp_path / "a.json").read(None)) == [row, row]


def test_objects_of_any_depth_are_rows_or_told_with_their_line(tmp_path):
    lines = ['{"a": "\\u0041", "b": ' + "[" * depth + "]" * depth + "}\n" for depth in range(600, 1100)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    for number, row in enumerate(open_table(tmp_path / "a.jsonl").read(None), start=1):
        assert isinstance(row, dict) or f"a.jsonl line {number} " in str(row)


@pytest.mark.parametrize("layout", [json_lines, json_list])
def test_a_key_that_few_rows_have_far_behind_is_a_column(layout, tmp_path):
    path = layout(tmp_path).path
    rows = [*DICTS * 400, {**DICTS[0], "terms": {"Good day": "Guten Tag"}}]
    path.write_text(json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    convert_to_src_tgt(UserRows(path), tmp_path / "out.jsonl", "Tower")
    assert [line for line in (tmp_path / "out.jsonl").read_text().splitlines() if "terms" in line]


@pytest.mark.parametrize(("layout", "n_reads"), [(json_lines, 1 + 4), (json_list, 1)])
def test_json_is_opened_once_whatever_is_made_of_it(layout, n_reads, tmp_path, monkeypatch):
    opened = []
    open_binary = text_files.open_binary
    monkeypatch.setattr(text_files, "open_binary", lambda path: opened.append(path) or open_binary(path))
    rows = layout(tmp_path)
    held = hold_out(rows, tmp_path / "heldout.parquet", 1, "Tower")
    convert_to_src_tgt(rows, tmp_path / "rl.jsonl", "Tower", held.without)
    convert_to_rows(rows, tmp_path / "rows.parquet", "Tower", held.without)
    assert len(opened) == n_reads


@pytest.mark.parametrize(("name", "to"), [("rows.jsonl", "rl"), ("rows.parquet", "rows"), ("", None)])
def test_the_output_does_not_replace_the_input(name, to, tmp_path):
    (parquet if name.endswith(".parquet") else json_lines)(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"would be in the input .*; write to another folder"):
        converted(tmp_path / name, tmp_path / name, *(["--to", to] if to else []))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", ["json.gz", "json.zst"])
def test_a_damaged_compressed_file_is_told(ending, tmp_path):
    (tmp_path / f"a.{ending}").write_bytes(gzip.compress(json.dumps(DICTS).encode())[:40])
    with pytest.raises(UserError, match=r"a\.json\.\w+ cannot be read"):
        open_table(tmp_path / f"a.{ending}")


def test_blank_lines_between_objects_are_no_rows_and_other_lines_keep_their_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n[]\n \r\n{"a": 2}\n\n')
    first, broken, last = open_table(path).read(None)
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert str(broken).startswith(f"{path} line 3 is not a JSON object")


@pytest.mark.parametrize("write", [pq.write_table, pyarrow.feather.write_feather])
def test_texts_of_a_parquet_file_that_are_no_utf_8_are_told(write, tmp_path):
    texts = pa.array([b"day", b"Tag f\xfcr Tag"]).view(pa.string())
    path = tmp_path / ("a.parquet" if write is pq.write_table else "a.feather")
    write(pa.table({"src_text": texts}), path)
    with pytest.raises(UserError, match=r"cannot be read to its end .*; save it as UTF-8"):
        list(iter_raw_rows(path, ["src_text"]))
    with pytest.raises(UserError, match=r"cannot be read to its end .*; save it as UTF-8"):
        read_usable(path, {"src_text": "text"})


@pytest.mark.parametrize("segment", ["<seg", "<seg>", '<seg id="1">a</SEG>'])
def test_a_long_line_of_segments_that_do_not_end_is_told_at_once(segment, tmp_path):
    (tmp_path / "a.sgm").write_text(segment * (300_000 // len(segment)))
    start_s = time.process_time()
    with pytest.raises(UserError, match="line 1 has a segment that does not end"):
        list(open_table(tmp_path / "a.sgm").read(None))
    assert time.process_time() - start_s < 2


def test_every_segment_of_a_line_is_a_row(tmp_path):
    (tmp_path / "a.sgm").write_text('<doc><seg id="1"> a &lt; b</seg> <seg id="2"></seg><seg>c > d</seg></doc>\n')
    assert [row["src_text"] for row in open_table(tmp_path / "a.sgm").read(None)] == ["a < b", "", "c > d"]


def test_a_pipe_is_read_to_its_end_and_is_a_sentence_where_nothing_comes(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(path.write_text, "a\nb\n")
        assert list(lines_of(path)) == [(1, "a"), (2, "b")]
    monkeypatch.setattr(small_files, "WAIT_S", 0.05)
    with pytest.raises(UserError, match=r"the input file '.*pipe' is a pipe to which nothing was written"):
        list(lines_of(path))


def test_files_with_different_numbers_of_lines_are_refused(tmp_path):
    rows = lines_of_two_files(tmp_path)
    with (tmp_path / "train.de").open("a") as file:
        file.write("eine mehr\n")
    with pytest.raises(UserError, match=r"train\.en has 4 lines and .*train\.de 5"):
        list(iter_raw_rows(rows))


@pytest.mark.parametrize(("other", "splits"), [("test-0", "test, train"), ("heldout", "heldout, train")])
def test_a_folder_of_several_splits_or_kinds_is_refused(other, splits, tmp_path):
    pq.write_table(TABLE, tmp_path / "train-0.parquet")
    pq.write_table(TABLE, tmp_path / f"{other}.parquet")
    with pytest.raises(UserError, match=f"files of the splits {splits}; give a file or a folder of one of them"):
        list(iter_raw_rows(tmp_path))
    json_lines(tmp_path)
    with pytest.raises(UserError, match=r"files of the kinds \.jsonl \.parquet"):
        list(iter_raw_rows(tmp_path))


def test_shards_of_json_may_have_keys_that_others_have_not_or_no_rows(tmp_path):
    (tmp_path / "0.jsonl").touch()
    for name, more in (("a", {}), ("b", {"note": "x"})):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row | more) + "\n" for row in DICTS))
    assert open_table(tmp_path).names == (*COLUMNS, "note")
    assert len(list(iter_raw_rows(tmp_path))) == 2 * len(ROWS)
    (tmp_path / "b.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    with pytest.raises(UserError, match="give a folder of files with the same ones"):
        open_table(tmp_path)


def test_a_first_row_without_translations_does_not_hide_the_languages_of_the_others(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"translation": null}\n{"translation": {"en": "a", "pt-BR": "b"}}\n')
    rows = UserRows(tmp_path / "a.jsonl", src_lang="en", trg_lang="pt-BR")
    assert [values for _, values in iter_raw_rows(rows)] == [(None, None, "en", "pt-BR"), ("a", "b", "en", "pt-BR")]


def test_the_splits_of_a_saved_data_set_are_named(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UserError, match=r"has the splits train, test; give one of them, such as .*train"):
        list(iter_raw_rows(tmp_path))


def test_rows_without_a_known_language_are_told_in_one_line(tmp_path, caplog):
    rows = [*DICTS, *(DICTS[0] | {"trg_lang": f"germ{at}"} for at in range(30))]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    report = convert_to_src_tgt(tmp_path / "rows.jsonl", tmp_path / "out.jsonl")
    assert "30 left out (30 x unknown language)" in report.summary()
    assert len(caplog.records) == 1
    assert "row 5 left out: unknown language 'germ0': did you mean 'German'" in caplog.text


def converted(*arguments: object) -> str:
    return invoke("data", "convert", *arguments).output


def test_two_files_of_lines_become_training_files(tmp_path):
    rows = lines_of_two_files(tmp_path)
    told = converted(rows.path, tmp_path / "out.jsonl", "--to", "rl", "--target", rows.target, "--trg-lang", "de-AT")
    assert "4 rows written, 0 left out" in told
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert "from English into Austrian German" in first["src"]
    assert "--columns" in refusal("data", "convert", rows.path, "out", "--columns", "source=en")


def test_files_that_are_both_named_after_the_pair_do_not_say_which_language_is_whose(tmp_path):
    source, target = tmp_path / "news.en-de.src", tmp_path / "news.en-de.trg"
    source.write_text("day\n")
    target.write_text("Tag\n")
    with pytest.raises(UserError, match=r"lacks column src_lang, trg_lang .* --src-lang LANG --trg-lang LANG"):
        list(iter_raw_rows(UserRows(source, target)))
    rows = UserRows(source, target, src_lang="en", trg_lang="de")
    assert [values for _, values in iter_raw_rows(rows)] == [("day", "Tag", "en", "de")]


@pytest.mark.parametrize("layout", [nested_column, tab_separated, lines_of_two_files, memory])
def test_rows_can_be_written_in_the_columns_that_other_commands_read(layout, tmp_path):
    rows = layout(tmp_path)
    assert convert_to_rows(rows, tmp_path / "new" / "rows.parquet").written == 4
    assert read_rows(tmp_path / "new" / "rows.parquet") == ROWS
    with pytest.raises(UserError, match=r"does not end with \.parquet"):
        convert_to_rows(rows, tmp_path / "rows.csv")


@pytest.mark.parametrize("delimiter", ["\0;", "\0", "¦"])
def test_a_delimiter_that_cannot_be_one_is_a_sentence(tmp_path, delimiter):
    path = tmp_path / "rows.csv"
    path.write_text(f"sep={delimiter}\nsrc_text;trg_text\n", encoding="utf-8")
    with pytest.raises(UserError, match="give an ASCII character"):
        list(iter_raw_rows(path))


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_the_users_mistake_at_most(layout, data, tmp_path):
    rows = layout(tmp_path)
    path = rows.path if rows.path.is_file() else min(rows.path.iterdir())
    content = path.read_bytes()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=9)) + content[end:])
    with contextlib.suppress(UserError):
        list(iter_raw_rows(rows))


def test_a_file_that_is_read_whole_does_not_stay_in_memory_with_columns_that_nobody_reads():
    class Noted(dict):
        __hash__ = object.__hash__

    alive, numbers = weakref.WeakSet(), []

    def read(_):
        for number in range(50):
            row = Noted(a=number, b="x" * 1000)
            alive.add(row)
            numbers.append(len(alive))
            yield row

    table = in_batches(RowTable("rows", ("a", "b"), read), ["a"], 20)
    assert max(numbers) < 10
    assert (table.n_rows, table.schema.names) == (50, ["a"])
    assert [batch.num_rows for batch in table.batches(None)] == [20, 20, 10]


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".arrow"])
def test_groups_convert_from_every_layout_as_from_parquet(ending, tmp_path):
    group = DICTS[0] | {"mt_texts": ["a", "b"], "scores": [1, 2.5], "analysis": "B is better."}
    groups = [group | {"scores": [2, 1]}, group, group | {"trg_lang": "xx"}]
    paths = [tmp_path / f"groups{one}" for one in (".parquet", ending)]
    pq.write_table(pa.Table.from_pylist(groups), paths[0])
    if ending == ".arrow":
        pyarrow.feather.write_feather(pa.Table.from_pylist(groups), paths[1])
    else:
        paths[1].write_text("\n".join(map(json.dumps, groups)) if ending == ".jsonl" else json.dumps(groups))
    reports = [convert_sft_gqm(path, tmp_path / "out.jsonl") for path in paths]
    lines = [convert_sft_gqm(path, tmp_path / "out.jsonl") and (tmp_path / "out.jsonl").read_text() for path in paths]
    assert reports[0] == reports[1]
    assert reports[0].written == 2
    assert lines[0] == lines[1]
