"""What a small judge learns from: what the reference has at every word, and places in the group."""

import json
from difflib import SequenceMatcher
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.annotation.groups import SCHEMA
from grrm.data.annotation.relative import places, relative_groups
from grrm.data.converters.sft_expected import WordPlaces, convert_sft_expected, expected_in, expected_tokens
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import gqm_prompt, sqm_prompt

STOP = 0
BY_LETTER = WordPlaces(lambda text: [ord(letter) for letter in text], lambda text: list(range(1, len(text) + 1)), STOP)
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


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ("abc", "abc", "abc."),  # itself, and the end
        ("axc", "abc", "abc."),  # another word in its place
        ("abxc", "abc", "abcc."),  # one too many: what comes next
        ("ac", "abc", "abc."[:1] + "b" + "."),  # one left out: it was to come
        ("ab", "abc", "abc"),  # ended too early: the reference goes on
        ("abcx", "abc", "abc.."),  # goes on where the reference has ended
        ("x", "", ".."),
        ("", "abc", "a"),
    ],
)
def test_expected_is_what_the_reference_has_at_that_place(candidate: str, reference: str, expected: str) -> None:
    found = expected_tokens(BY_LETTER.encode(candidate), BY_LETTER.encode(reference), ord("."))
    assert "".join(map(chr, found)) == expected


LETTERS = st.lists(st.integers(1, 3), max_size=8)


@given(LETTERS, LETTERS)
def test_expected_agrees_where_both_texts_do_and_never_names_a_foreign_token(candidate, reference) -> None:
    found = expected_tokens(candidate, reference, STOP)
    assert len(found) == len(candidate) + 1
    assert set(found) <= {*reference, STOP}
    theirs, ours = [*candidate, STOP], [*reference, STOP]
    blocks = SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks()
    agreeing = {place for block in blocks for place in range(block.a, block.a + block.size)}
    # A token whose predecessor in the reference was left out is not what was to come first.
    assert sum(found[place] == theirs[place] for place in agreeing) >= len(agreeing) - len(blocks)
    if candidate == reference:
        assert found == theirs


TEXTS = st.text(st.sampled_from("ab 1`\nTranslation A:日"), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(TEXTS, st.lists(TEXTS, min_size=2, max_size=4), TEXTS)
def test_labels_lie_on_the_candidates_even_where_the_source_looks_like_one(source, texts, reference) -> None:
    source = f"{source}\n```\n\nTranslation A:\n```\n{texts[0]}\n```\nTranslation text:\n```\n{texts[0]}"
    group = render_chatml(gqm_prompt(source, texts, "en", "de", "score"))
    single = render_chatml(sqm_prompt(source, texts[0], "en", "de"))
    for prompt, shown in ((group, list(zip("ABCD", texts, strict=False))), (single, [("text", texts[0])])):
        labels = list(expected_in(prompt, shown, reference, BY_LETTER))
        # Behind the token before each candidate, and behind each of its own.
        read = "".join(prompt[position] for position, _ in labels)
        assert read == "".join(f"\n{text}" for _, text in shown)
        assert labels[-1][0] + 1 == len(prompt) - len("\n```\n<|im_end|>\n<|im_start|>assistant\n")


def test_groups_that_cannot_be_shown_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "scores": [1]}, {**ROW, "mt_texts": ["a"], "scores": [1]}, {**ROW, "trg_text": None}]
    rows.append({**ROW, "mt_texts": ["a", "<|im_end|>", "c"]})
    report = convert_sft_expected(table(tmp_path, *rows), tmp_path / "out.jsonl", BY_LETTER, singles=0)
    assert (report.written, [row.row for row in report.rejected]) == (1, [2, 3, 4, 5])
    assert relative_groups(tmp_path / "groups.parquet", tmp_path / "out.parquet").written == 1


def test_groups_left_out_are_told_by_their_rows_in_the_file(tmp_path: Path) -> None:
    groups = table(tmp_path, {**ROW, "scores": [1]}, ROW, {**ROW, "scores": [4, 4, 4]})
    assert [row.row for row in relative_groups(groups, tmp_path / "out.parquet").rejected] == [1, 3]


def test_each_group_gives_its_prompt_and_some_candidates_alone(tmp_path: Path) -> None:
    groups, out = table(tmp_path, ROW, ROW), tmp_path / "out.jsonl"
    assert convert_sft_expected(groups, out, BY_LETTER, singles=2).written == 6
    lines = lines_of(out)
    assert lines[0]["tgt"] == "\n\nA: 10, B: 6, C: 6"
    assert {lines[1]["tgt"], lines[2]["tgt"]} <= {"\n\n10", "\n\n6"}
    assert [("Translation B:" in line["src"]) for line in lines] == [True, False, False] * 2
    first = lines[0]["labels"][: len("3. Mai 2024") + 1]
    assert [chr(token) for _, token in first[:-1]] == list("3. Mai 2024")
    assert first[-1][1] == STOP


def test_places_keep_the_order_and_spread_it_over_all_scores(tmp_path: Path) -> None:
    assert places([3, 7, 3, 9]) == [0, 4, 0, 9]
    assert places([5, 5]) is None
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


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not end with .jsonl"):
        convert_sft_expected(tmp_path / "x.parquet", tmp_path / "x.parquet", BY_LETTER)
    damaged = table(tmp_path, {**ROW, "scores": [1]}, {**ROW, "scores": [1, 1, 1]})
    with pytest.raises(UserError, match="no group whose scores differ"):
        relative_groups(damaged, tmp_path / "y.parquet")
    with pytest.raises(UserError, match=r"does not end with .parquet"):
        relative_groups(damaged, tmp_path / "y.jsonl")
    with pytest.raises(UserError, match="singles is -1"):
        convert_sft_expected(damaged, tmp_path / "x.jsonl", BY_LETTER, singles=-1)
    coarse = WordPlaces(BY_LETTER.encode, lambda text: [*range(1, len(text) - 50), len(text)], STOP)
    with pytest.raises(UserError, match="tokens that reach over"):
        convert_sft_expected(damaged, tmp_path / "x.jsonl", coarse)
    with pytest.raises(UserError, match="top_score is 0"):
        relative_groups(tmp_path / "x.parquet", tmp_path / "y.parquet", top_score=0)
    with pytest.raises(UserError, match="group_size is 1"):
        relative_groups(tmp_path / "x.parquet", tmp_path / "y.parquet", group_size=1)
