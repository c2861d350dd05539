"""Labels inside prompts: which token predicts what, and mistakes in the file told with their line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.dataset import SftDataset
from grrm.data.prompt_labels import label_tokens, read_spans
from grrm.errors import UserError


def encode(text: str) -> list[int]:
    return list(text.encode())


def ends(text: str) -> list[int]:
    return list(range(1, len(text) + 1))


def dataset(path: Path, row: dict[str, object], **options: object) -> SftDataset:
    path.write_text(json.dumps(row), encoding="utf-8")
    return SftDataset(path, encode, 2, 99, labels_key="labels", token_ends=ends, **options)  # type: ignore[arg-type]


def test_every_token_that_ends_in_a_span_predicts_its_text(tmp_path: Path) -> None:
    row = {"src": "ab cd", "tgt": "x", "labels": [[3, 5, "-"], [0, 2, "+"]]}
    (item,) = dataset(tmp_path / "x.jsonl", row)
    assert item.prompt_labels == ((0, 43), (1, 43), (3, 45), (4, 45))


def test_token_of_several_characters_belongs_where_its_last_one_is() -> None:
    spans = [(0, 3, "a"), (3, 4, "b"), (6, 7, "c")]
    assert label_tokens(spans, [2, 4, 6, 9], lambda text: ord(text)) == ((0, 97), (1, 98))


@given(st.lists(st.integers(1, 4), max_size=12), st.lists(st.integers(1, 5), max_size=8), st.data())
def test_labels_are_those_of_a_search_through_all_spans(
    lengths: list[int], gaps: list[int], data: st.DataObject
) -> None:
    token_ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    spans, at = [], 0
    for gap in gaps:
        start = at + data.draw(st.integers(0, gap))
        at = start + gap
        spans.append((start, at, str(len(spans))))
    found = {
        (position, int(text))
        for position, end in enumerate(token_ends)
        for start, stop, text in spans
        if start <= end - 1 < stop
    }
    assert set(label_tokens(spans, token_ends, int)) == found


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, "must be a list"),
        ([[0, 1]], "must be a list"),
        ([[0, True, "+"]], "must be a list"),
        ([[1, 1, "+"]], "has the span 1 to 1, which is not in a prompt of 5 characters"),
        ([[4, 6, "+"]], "has the span 4 to 6"),
        ([[0, 2, "+"], [1, 3, "-"]], "has two spans at character 1"),
        ([[0, 2, "++"]], "has the label '++', which is 2 tokens"),
    ],
)
def test_wrong_labels_are_told_with_their_line(tmp_path: Path, labels: object, sentence: str) -> None:
    with pytest.raises(UserError, match=r"x.jsonl line 1: 'labels' ") as caught:
        dataset(tmp_path / "x.jsonl", {"src": "ab cd", "tgt": "x", "labels": labels})
    assert sentence in str(caught.value)


def test_tokenizer_that_does_not_know_where_its_tokens_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"src": "ab", "tgt": "x", "labels": []}', encoding="utf-8")
    with pytest.raises(UserError, match="use a fast one"):
        SftDataset(path, encode, 2, 99, labels_key="labels")


def test_spans_are_sorted() -> None:
    assert read_spans([[2, 3, "b"], [0, 1, "a"]], "abc") == [(0, 1, "a"), (2, 3, "b")]
