"""`grrm translate` and `grrm rank` on a folder of language-pair files: shares, and what is there already."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.completions_server import CompletionsServer

from grrm.cli import grrm
from grrm.errors import UserError

ROW = {"src_text": "eins", "trg_text": "one", "src_lang": "de", "trg_lang": "en", "mt_texts": ["one", "two"]}


def call(*words):
    return CliRunner().invoke(grrm, list(map(str, words)), catch_exceptions=False, standalone_mode=False)


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
    call("rank", folder, "--out", out, "--judge", "text_metric", "--score-key", "scores")
    assert names(out) == ["de2en.parquet", "en2de.parquet"]
    assert pq.read_table(out / "de2en.parquet")["scores"].to_pylist()[0][0] == 10.0
    (out / "en2de.parquet").unlink()
    kept = (out / "de2en.parquet").stat().st_mtime_ns
    again = call("rank", folder, "--out", out, "--judge", "text_metric", "--score-key", "scores")
    assert "de2en.parquet: there already" in again.stderr
    assert "fr2en.parquet: no rows" in again.stderr
    assert names(out) == ["de2en.parquet", "en2de.parquet"]
    assert (out / "de2en.parquet").stat().st_mtime_ns == kept


def test_parts_share_out_the_files_and_open_the_model_once(folder, tmp_path):
    server = CompletionsServer(lambda body, number: f"text {number}")
    out = tmp_path / "sampled"
    words = ["--out", out, "--url", server.url, "--prompt-type", "Tower", "--chat-template", "chatml"]
    try:
        for file in folder.iterdir():
            table = pq.read_table(file).drop_columns(["mt_texts"])
            pq.write_table(table, file)
        call("translate", folder, *words, "--part-id", 1, "--device-num", 2)
        assert names(out) == ["en2de.parquet"]
        call("translate", folder, *words, "--part-id", 0, "--device-num", 2)
        assert names(out) == ["de2en.parquet", "en2de.parquet"]
        assert pq.read_table(out / "en2de.parquet")["translation"].to_pylist() == ["text 0"]
    finally:
        server.close()


def test_what_does_not_go_together_is_told(folder, tmp_path):
    with pytest.raises(UserError, match="is a folder: give another one with --out"):
        call("rank", folder, "--judge", "text_metric")
    with pytest.raises(UserError, match="is a folder: give another one with --out"):
        call("rank", folder, "--judge", "text_metric", "--out", folder)
    with pytest.raises(UserError, match="--part-id and --device-num share out the files of a folder"):
        call("rank", folder / "de2en.parquet", "--judge", "text_metric", "--device-num", 2)
    with pytest.raises(UserError, match="part 2 of 2 does not exist"):
        call("rank", folder, "--out", tmp_path / "x", "--judge", "text_metric", "--part-id", 2, "--device-num", 2)
