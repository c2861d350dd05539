"""Rows that `grrm data convert --held-out` keeps out of training, and where it writes them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data.layout_files import TABLE
from support.command_line import invoke

from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import iter_raw_rows
from grrm.errors import UserError


def converted(*arguments: object) -> str:
    return invoke("data", "convert", *arguments).output


def test_held_out_sources_are_in_no_row_of_training(tmp_path):
    rows = [(f"Source {at}", f"Ziel {at}", "en", "de") for at in range(40)]
    rows += [(f"source  {at} ", f"cible {at}", "en", "fr") for at in range(40)]
    rows += [(f"Ziel {at}", f"SOURCE {at}", "de", "en") for at in range(40)]
    pq.write_table(
        pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows]), tmp_path / "in.parquet"
    )
    told = converted(tmp_path / "in.parquet", tmp_path / "out", "--held-out", 10)
    held = [values for _, values in iter_raw_rows(tmp_path / "out/heldout.parquet")]
    sources = {" ".join(source.casefold().split()) for source, *_ in held}
    tasks = [json.loads(json.loads(line)["tgt"]) for line in (tmp_path / "out/rl.jsonl").read_text().splitlines()]
    assert len(held) == len(sources) == 10
    assert "10 rows held out" in told
    assert "heldout.jsonl: 10 rows written, 0 left out" in told
    lines = [json.loads(line) for line in (tmp_path / "out/heldout.jsonl").read_text().splitlines()]
    assert [(task["source"], task["reference"]) for task in (json.loads(line["tgt"]) for line in lines)] == [
        (source, reference) for source, reference, *_ in held
    ]
    for task in tasks:
        for key in ("source", "reference"):
            assert " ".join(task[key].casefold().split()) not in sources
    assert len(tasks) == len((tmp_path / "out/sft.jsonl").read_text().splitlines())
    with pytest.raises(UserError, match="80 usable source texts; hold out fewer than 80"):
        converted(tmp_path / "in.parquet", tmp_path / "out", "--held-out", 80)
    with pytest.raises(UserError, match="unknown prompt type 'Towr': did you mean 'Tower'"):
        converted(tmp_path / "in.parquet", tmp_path / "out", "--held-out", 10, "--prompt-type", "Towr")


def test_rows_without_a_column_leave_no_folder_behind(tmp_path):
    pq.write_table(TABLE.drop_columns(["src_lang"]), tmp_path / "in.parquet")
    with pytest.raises(UserError, match=r"lacks column src_lang"):
        converted(tmp_path / "in.parquet", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["rl.jsonl", "rows.parquet"])
def test_two_files_are_not_written_into_a_folder_with_the_name_of_one(name, tmp_path):
    pq.write_table(TABLE, tmp_path / "in.parquet")
    with pytest.raises(UserError, match=rf"{name} is the name of a file, .*give --to rl or --to sft, or a folder"):
        converted(tmp_path / "in.parquet", tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("kind", "out"), [("rl", "heldout.jsonl"), ("rows", "heldout.parquet")])
def test_training_rows_do_not_replace_the_held_out_ones(kind, out, tmp_path):
    pq.write_table(TABLE, tmp_path / "in.parquet")
    with pytest.raises(UserError, match=r"is for the rows of --held-out; give OUT another name"):
        converted(tmp_path / "in.parquet", tmp_path / "out" / out, "--to", kind, "--held-out", 1)


@pytest.mark.parametrize(("kind", "out"), [("rl", "rl.jsonl"), ("sft", "sft.jsonl"), ("rows", "rows.parquet")])
def test_held_out_rows_are_lines_for_rl_where_the_others_are(kind, out, tmp_path):
    pq.write_table(TABLE, tmp_path / "in.parquet")
    converted(
        tmp_path / "in.parquet",
        tmp_path / "out" / out,
        "--to",
        kind,
        "--held-out",
        1,
        "--messages" if kind == "rl" else "--prompt-type=Tower",
    )
    assert (tmp_path / "out/heldout.parquet").is_file()
    written = tmp_path / "out/heldout.jsonl"
    assert written.is_file() == (kind == "rl")
    assert kind != "rl" or "messages" in json.loads(written.read_text())


@pytest.mark.parametrize(
    ("rows", "out"),
    [("heldout.parquet", ""), ("heldout.jsonl", ""), ("heldout.jsonl", "rl.jsonl"), ("", ""), ("", "all.jsonl")],
)
def test_held_out_rows_do_not_replace_the_input_or_join_it(rows, out, tmp_path):
    pq.write_table(TABLE, tmp_path / "heldout.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist())
    (tmp_path / "heldout.jsonl").write_text(lines, encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"would be in the input .*; write to another folder"):
        converted(tmp_path / rows, tmp_path / out, "--held-out", 1, *(["--to", "rl"] if out else []))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
