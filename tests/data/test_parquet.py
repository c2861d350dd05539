import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grrm.data.atomic import atomic_path
from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import TranslationRow, count_rows, iter_raw_rows, read_rows, write_rows
from grrm.errors import UserError

ROWS = [TranslationRow("a", "b", "en", "de"), TranslationRow("줄\n바꿈", "", "ko", "zh")]


def test_rows_come_back_as_written_over_several_batches(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "rows.parquet"
    rows = [TranslationRow(str(i), ROWS[1].src_text, "en", "de") for i in range(20_000)]
    assert write_rows(path, iter(rows)) == 20_000
    assert read_rows(path) == rows
    assert count_rows(path) == 20_000
    assert pq.read_schema(path).names == list(COLUMNS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "x.parquet does not exist"),
        ("src_text,trg_text\n", "x.parquet is not a readable parquet file"),
        (("src_text", "target", "src_lang", "trg_lang"), r"lacks column trg_text \(found: src_text, target.* rename"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, columns: object, message: str) -> None:
    path = tmp_path / "x.parquet"
    if isinstance(columns, str):
        path.write_text(columns)
    elif isinstance(columns, tuple):
        pq.write_table(pa.table({name: ["a"] for name in columns}), path)
    with pytest.raises(UserError, match=message) as error:
        read_rows(path)
    assert "\n" not in str(error.value)


def test_an_empty_file_is_refused_when_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    assert write_rows(path, []) == 0
    assert count_rows(path) == 0
    with pytest.raises(UserError, match="has no rows"):
        read_rows(path)


def test_raw_rows_keep_nulls_and_ignore_other_columns_and_their_order(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "id": [7, 8],
        "trg_lang": ["de", None],
        "src_lang": ["en"] * 2,
        "trg_text": ["b"] * 2,
        "src_text": [1, 2],
    }
    pq.write_table(pa.table(columns), path)
    assert list(iter_raw_rows(path)) == [(1, (1, "b", "en", "de")), (2, (2, "b", "en", None))]
    with pytest.raises(UserError, match="row 1: column src_text holds 1"):
        read_rows(path)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, ROWS)

    def broken():  # type: ignore[no-untyped-def]
        yield ROWS[0]
        raise RuntimeError("source ran dry")

    with pytest.raises(RuntimeError, match="ran dry"):
        write_rows(path, broken())
    assert read_rows(path) == ROWS
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o002, 0o664)])
def test_a_file_is_as_private_as_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_rows(tmp_path / "rows.parquet", ROWS)
    finally:
        os.umask(before)
    assert (tmp_path / "rows.parquet").stat().st_mode & 0o777 == mode


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # as /dev/null is, no file that may be replaced
    with pytest.raises(UserError, match="pipe is no file"), atomic_path(tmp_path / "pipe"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), atomic_path(tmp_path / "file" / "x"):
        pass
    with pytest.raises(UserError, match="is a folder"), atomic_path(tmp_path):
        pass
