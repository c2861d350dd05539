"""`grrm translate` and `grrm rank` on a folder of language-pair files: shares, and what is there already."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import invoke
from support.completions_server import CompletionsServer

from grrm.errors import UserError

ROW = {"src_text": "eins", "trg_text": "one", "src_lang": "de", "trg_lang": "en", "mt_texts": ["one", "two"]}


@pytest.fixture
def folder(tmp_path):
    """Three files, of which one has no rows."""
    path = tmp_path / "rows"
    path.mkdir()
    table = pa.Table.from_pylist([ROW])
    for name, rows in (("de2en", table), ("en2de", table), ("fr2en", table.slice(0, 0))):
        pq.write_table(rows, path / f"{name}.parquet")
    return path


def names(path):
    return sorted(file.name for file in path.iterdir())


def test_every_file_is_ranked_and_those_that_are_there_are_kept(folder, tmp_path):
    out = tmp_path / "scored"
    invoke("rank", folder, "--out", out, "--judge", "text_metric", "--score-key", "scores")
    assert names(out) == ["de2en.parquet", "en2de.parquet"]
    assert pq.read_table(out / "de2en.parquet")["scores"].to_pylist()[0][0] == 10.0
    (out / "en2de.parquet").unlink()
    kept = (out / "de2en.parquet").stat().st_mtime_ns
    again = invoke("rank", folder, "--out", out, "--judge", "text_metric", "--score-key", "scores")
    assert "de2en.parquet: there already" in again.stderr
    assert "fr2en.parquet: no rows" in again.stderr
    assert names(out) == ["de2en.parquet", "en2de.parquet"]
    assert (out / "de2en.parquet").stat().st_mtime_ns == kept


def test_parts_share_out_the_files_and_open_the_model_once(folder, tmp_path):
    with CompletionsServer(lambda body, number: f"text {number}") as server:
        out = tmp_path / "sampled"
        words = ["--out", out, "--url", server.url, "--prompt-type", "Tower", "--chat-template", "chatml"]
        for file in folder.iterdir():
            table = pq.read_table(file).drop_columns(["mt_texts"])
            pq.write_table(table, file)
        invoke("translate", folder, *words, "--part-id", 1, "--device-num", 2)
        assert names(out) == ["en2de.parquet"]
        invoke("translate", folder, *words, "--part-id", 0, "--device-num", 2)
        assert names(out) == ["de2en.parquet", "en2de.parquet"]
        assert pq.read_table(out / "en2de.parquet")["translation"].to_pylist() == ["text 0"]


BAD = [
    ROW,
    ROW | {"src_text": None},
    ROW | {"src_text": " "},
    ROW | {"src_lang": "xx"},
    ROW | {"trg_lang": None},
    ROW | {"src_text": "zwei", "mt_texts": ["two", None, ""]},
]


def test_bad_rows_of_a_folder_are_named_left_out_and_counted(folder, tmp_path, caplog):
    rows = [*BAD, ROW | {"mt_texts": None}, ROW | {"trg_text": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "de2en.parquet")
    out = tmp_path / "scored"
    told = invoke("rank", folder, "--out", out, "--judge", "text_metric", "--score-key", "scores")
    assert [row["src_text"] for row in pq.read_table(out / "de2en.parquet").to_pylist()] == ["eins", "zwei"]
    assert "6 rows left out (2 x src_text is not text, 1 x src_lang is not a language" in told.stderr
    assert "de2en.parquet row 2: column src_text holds None; it must be text" in caplog.text
    assert "de2en.parquet row 8: column trg_text holds None; it must be text" in caplog.text
    # a single file's rows stay beside its results
    told = invoke("rank", folder / "de2en.parquet", "--judge", "text_metric", "--out", tmp_path / "one.parquet")
    assert "6 rows not judged (2 x src_text is not text" in told.stderr
    found = pq.read_table(tmp_path / "one.parquet").to_pylist()
    assert [row["src_text"] for row in found] == [row["src_text"] for row in rows]
    assert [number for number, row in enumerate(found, start=1) if row["judge_scores"] is not None] == [1, 6]


def test_bad_sources_of_a_folder_are_not_translated(folder, tmp_path):
    rows = [{**row, "ref_text": "uno", "ref_lang": "es"} for row in BAD] + [{**ROW, "ref_text": None, "ref_lang": "es"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "de2en.parquet")
    (folder / "en2de.parquet").unlink()
    server, out = CompletionsServer(lambda body, number: f"text {number}"), tmp_path / "sampled"
    words = ["--out", out, "--url", server.url, "--prompt-type", "Tower", "--chat-template", "chatml"]
    try:
        told = invoke("translate", folder, *words, "--anchor-key", "ref_text")
    finally:
        server.close()
    assert pq.read_table(out / "de2en.parquet")["src_text"].to_pylist() == ["eins", "zwei"]
    assert "5 rows left out" in told.stderr


def test_a_file_of_bad_rows_is_one_sentence(folder, tmp_path):
    pq.write_table(pa.Table.from_pylist([ROW | {"src_lang": "xx"}]), folder / "de2en.parquet")
    with pytest.raises(UserError, match="row 1: column src_lang holds 'xx'; it must be a language"):
        invoke("rank", folder, "--out", tmp_path / "scored", "--judge", "text_metric")


def test_a_folder_may_have_a_dot_in_its_name(folder, tmp_path):
    out = tmp_path / "scored.v2"
    invoke("rank", folder, "--out", out, "--judge", "text_metric")
    assert names(out) == ["de2en.parquet", "en2de.parquet"]
    invoke("rank", folder.rename(tmp_path / "rows-1.5"), "--inplace", "--judge", "text_metric")
    assert pq.read_table(tmp_path / "rows-1.5/de2en.parquet").equals(pq.read_table(out / "de2en.parquet"))


def test_what_does_not_go_together_is_told(folder, tmp_path):
    (tmp_path / "file").touch()
    for out in ([], ["--out", tmp_path / "one.parquet"], ["--out", tmp_path / "file"]):
        with pytest.raises(UserError, match="is a folder: give another one with --out"):
            invoke("rank", folder, "--judge", "text_metric", *out)
    with pytest.raises(UserError, match=r"--inplace writes to .*, and --out says .*: leave out one of them"):
        invoke("rank", folder, "--judge", "text_metric", "--inplace", "--out", tmp_path / "x")
    with pytest.raises(UserError, match="ROWS is standard input: give --out"):
        invoke("rank", "-", "--judge", "text_metric", "--inplace")
    with pytest.raises(UserError, match="--part-id and --device-num share out the files of a folder"):
        invoke("rank", folder / "de2en.parquet", "--judge", "text_metric", "--device-num", 2)
    with pytest.raises(UserError, match="part 2 of 2 does not exist"):
        invoke("rank", folder, "--out", tmp_path / "x", "--judge", "text_metric", "--part-id", 2, "--device-num", 2)
