"""Labels inside prompts: read by position, and mistakes in the file told with their line."""

import json
from pathlib import Path

import pytest

from grrm.data.dataset import SftDataset
from grrm.errors import UserError


def dataset(path: Path, row: dict[str, object], **options: object) -> SftDataset:
    path.write_text(json.dumps(row), encoding="utf-8")
    return SftDataset(path, lambda text: list(text.encode()), 2, 99, **{"labels_key": "labels", **options})


def test_labels_come_in_the_order_of_their_tokens(tmp_path: Path) -> None:
    (item,) = dataset(tmp_path / "x.jsonl", {"src": "ab cd", "tgt": "x", "labels": [[3, 45], [0, 43]]})
    assert item.prompt_labels == ((0, 43), (3, 45))
    assert item.prompt_len == 5


def test_without_a_key_labels_are_not_read(tmp_path: Path) -> None:
    (item,) = dataset(tmp_path / "x.jsonl", {"src": "ab", "tgt": "x", "labels": "?"}, labels_key="")
    assert item.prompt_labels == ()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "must be a list of"),
        ({"0": 1}, "must be a list of"),
        ([[0]], "must be a list of"),
        ([[0, "+"]], "must be a list of"),
        ([[0, True]], "must be a list of"),
        ([[0, -1]], "must be a list of"),
        ([[5, 1]], "has the position 5, which is not in a prompt of 5 tokens"),
        ([[-1, 1]], "has the position -1"),
        ([[2, 1], [2, 3]], "has two labels at position 2"),
    ],
)
def test_mistake_names_file_line_and_remedy(tmp_path: Path, labels: object, message: str) -> None:
    with pytest.raises(UserError, match=f"x.jsonl line 1: 'labels' {message}.*grrm data sft-expected"):
        dataset(tmp_path / "x.jsonl", {"src": "ab cd", "tgt": "x", "labels": labels})
