from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grrm.data.atomic import atomic_path
from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import TranslationRow, count_rows, iter_raw_rows, read_rows, write_rows
from grrm.errors import UserError

ROWS = [TranslationRow("a", "b", "en", "de"), TranslationRow("줄\n바꿈", "", "ko", "zh")]


def _one_sentence(error: pytest.ExceptionInfo[UserError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_rows_come_back_as_written_over_several_batches(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "rows.parquet"
    rows = [TranslationRow(str(i), ROWS[1].src_text, "en", "de") for i in range(20_000)]
    assert write_rows(path, iter(rows)) == 20_000
    assert read_rows(path) == rows
    assert count_rows(path) == 20_000
    assert pq.read_schema(path).names == list(COLUMNS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_rows(tmp_path / "nothing.parquet")
    assert "nothing.parquet does not exist" in _one_sentence(error)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("src_text,trg_text\n")
    with pytest.raises(UserError) as error:
        read_rows(path)
    assert "x.parquet is not a readable parquet file" in _one_sentence(error)


def test_a_wrong_column_is_named_with_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"src_text": ["a"], "target": ["b"], "src_lang": ["en"], "trg_lang": ["de"]}), path)
    with pytest.raises(UserError) as error:
        list(iter_raw_rows(path))
    message = _one_sentence(error)
    assert "lacks column trg_text (found: src_text, target, src_lang, trg_lang)" in message
    assert "rename" in message


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


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), atomic_path(tmp_path / "file" / "x"):
        pass
    with pytest.raises(UserError, match="is a folder"), atomic_path(tmp_path):
        pass
