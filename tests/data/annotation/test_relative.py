"""Gold scores by the place in the group, for a judge that compares."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grrm.data.annotation.groups import SCHEMA
from grrm.data.annotation.relative import relative_groups, spread_scores
from grrm.errors import UserError

ROW = {
    "src_text": "May 3, 2024",
    "trg_text": "3. Mai 2024",
    "src_lang": "en",
    "trg_lang": "de",
    "mt_texts": ["3. Mai 2024", "4. Mai 2024", "Mai"],
    "scores": [10, 6, 6],
    "analysis": "A is best",
    "analyses": ["right", "wrong", "wrong"],
}


def table(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "groups.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), path)
    return path


def test_groups_that_cannot_be_shown_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "scores": [1]}, {**ROW, "mt_texts": ["a"], "scores": [1]}, {**ROW, "trg_text": None}]
    rows.append({**ROW, "mt_texts": ["a", "<|im_end|>", "c"]})
    report = relative_groups(table(tmp_path, *rows), tmp_path / "out.parquet", analysis="alignment")
    assert (report.written, [row.row for row in report.rejected]) == (1, [2, 3, 4, 5])


@pytest.mark.parametrize("reference", ["", None])
def test_groups_of_people_need_no_reference_for_their_places(tmp_path: Path, reference: str | None) -> None:
    groups = table(tmp_path, {**ROW, "trg_text": reference})
    assert relative_groups(groups, tmp_path / "out.parquet").written == 1
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (row["trg_text"], row["scores"]) == (reference, [9, 0, 0])


def test_groups_left_out_are_told_by_their_rows_in_the_file(tmp_path: Path) -> None:
    groups = table(tmp_path, {**ROW, "scores": [1]}, ROW, {**ROW, "scores": [4, 4, 4]})
    assert [row.row for row in relative_groups(groups, tmp_path / "out.parquet").rejected] == [1, 3]


def test_places_keep_the_order_and_spread_it_over_all_scores(tmp_path: Path) -> None:
    assert spread_scores([3, 7, 3, 9]) == [0, 4, 0, 9]
    assert spread_scores([5, 5]) is None
    report = relative_groups(table(tmp_path, ROW, {**ROW, "scores": [4, 4, 4]}), tmp_path / "out.parquet")
    assert (report.written, len(report.rejected)) == (1, 1)
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert row == {
        **ROW,
        "scores": [9, 0, 0],
        "analysis": "",
        "analyses": [""] * 3,
    }  # the analyses told of the old scores


def test_large_groups_are_dealt_into_small_ones_with_places_of_their_own(tmp_path: Path) -> None:
    texts = list("abcdefg")
    row = {**ROW, "mt_texts": texts, "scores": [1, 2, 3, 4, 5, 6, 7], "analyses": [f"of {text}" for text in texts]}
    relative_groups(table(tmp_path, row), tmp_path / "out.parquet", group_size=3)
    dealt = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [len(one["mt_texts"]) for one in dealt] == [3, 3]  # one is left over
    for one in dealt:
        assert one["scores"] == [0, 4, 9]
        assert one["mt_texts"] == sorted(one["mt_texts"])
        assert one["analyses"] == [""] * 3
    assert len({text for one in dealt for text in one["mt_texts"]}) == 6


def test_gold_is_ranked_with_its_decimals(tmp_path: Path) -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("scores"), pa.field("scores", pa.list_(pa.float64())))
    rows = [{**ROW, "scores": [7.9, 7.1, 3.0]}, {**ROW, "scores": [7.9, 7.1], "mt_texts": ["a", "b"]}]
    rows[1] |= {"analyses": ["", ""]}
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "groups.parquet")
    relative_groups(tmp_path / "groups.parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["scores"].to_pylist() == [[9, 4, 0], [9, 0]]
    relative_groups(tmp_path / "groups.parquet", tmp_path / "kept.parquet", keep_scores=True)
    assert pq.read_table(tmp_path / "kept.parquet")["scores"].to_pylist() == [[7.9, 7.1, 3.0], [7.9, 7.1]]


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    alike = table(tmp_path, {**ROW, "scores": [1]}, {**ROW, "scores": [1, 1, 1]})
    with pytest.raises(UserError, match="no group whose scores differ"):
        relative_groups(alike, tmp_path / "y.parquet")
    with pytest.raises(UserError, match=r"does not end with .parquet"):
        relative_groups(alike, tmp_path / "y.jsonl")
    with pytest.raises(UserError, match="group_size is 1"):
        relative_groups(tmp_path / "x.parquet", tmp_path / "y.parquet", group_size=1)


def test_groups_are_written_in_several_orders(tmp_path: Path) -> None:
    source = table(tmp_path, ROW)
    relative_groups(source, tmp_path / "out.parquet", orders=4, keep_scores=True)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert len({tuple(row["mt_texts"]) for row in rows}) == len(rows) == 4
    gold = dict(zip(ROW["mt_texts"], ROW["scores"], strict=True))
    for row in rows:
        assert dict(zip(row["mt_texts"], row["scores"], strict=True)) == gold
    relative_groups(source, tmp_path / "all.parquet", orders=99)
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 6, "there are no more"
    relative_groups(source, tmp_path / "again.parquet", orders=4, keep_scores=True)
    assert pq.read_table(tmp_path / "again.parquet").to_pylist() == rows


def test_every_candidate_stands_everywhere(tmp_path: Path) -> None:
    rows = [{**ROW, "src_text": f"text {number}"} for number in range(60)]
    relative_groups(table(tmp_path, *rows), tmp_path / "out.parquet", orders=1)
    firsts = [row["mt_texts"][0] for row in pq.read_table(tmp_path / "out.parquet").to_pylist()]
    assert min(firsts.count(text) for text in ROW["mt_texts"]) >= 10


def test_analyses_follow_the_order_of_the_candidates(tmp_path: Path) -> None:
    relative_groups(table(tmp_path, ROW), tmp_path / "out.parquet", orders=2, analysis="alignment")
    lines = {"3. Mai 2024": "complete", "4. Mai 2024": "wrong 4; missing 3", "Mai": "missing 3, 2024"}
    for row in pq.read_table(tmp_path / "out.parquet").to_pylist():
        assert row["analyses"] == [lines[text] for text in row["mt_texts"]]
        assert row["analysis"].split("\n") == [f"{n}: {line}" for n, line in zip("ABC", row["analyses"], strict=True)]
