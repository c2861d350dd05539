"""The dense cold start: every word of a candidate labelled where it stands in the prompt, whatever the texts are."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.converters.sft_dense import compare, convert_sft_dense, labels_of
from grrm.data.prompt_labels import read_spans
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import gqm_prompt, sqm_prompt

ROW = {
    "src_text": "May 3, 2024",
    "trg_text": "3. Mai 2024",
    "src_lang": "en",
    "trg_lang": "de",
    "mt_texts": ["3. Mai 2024", "4. Mai 2024"],
    "scores": [10, 6],
}


def lines_of(folder: Path, kind: str, *rows: dict[str, object]) -> list[dict[str, object]]:
    parquet, out = folder / "groups.parquet", folder / "out.jsonl"
    pq.write_table(pa.Table.from_pylist(list(rows)), parquet)
    report = convert_sft_dense(parquet, out, kind)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert report.written == len(lines)
    return lines


def labelled(line: dict[str, object]) -> list[tuple[str, str]]:
    return [(line["src"][start:end], label) for start, end, label in line["labels"]]


def test_group_gets_a_label_for_each_word_and_the_score_of_all_candidates_but_the_last(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, "gqm", ROW)
    assert line["tgt"] == "\n\nA: 10, B: 6\n"
    words = ["3", ".", " Mai", " 2", "0", "2", "4"]
    right = [(word, "+") for word in words]
    assert labelled(line) == [*right, ("\n", "9"), ("4", "-"), *right[1:]]
    assert line["src"][: line["labels"][7][1]].endswith("Translation B:\n```\n")


def test_single_judge_gets_a_row_per_candidate_without_scores_inside(tmp_path: Path) -> None:
    first, second = lines_of(tmp_path, "sqm", ROW)
    assert (first["tgt"], second["tgt"]) == ("\n\n10", "\n\n6")
    assert {label for _, label in labelled(first)} == {"+"}
    assert labelled(second)[0] == ("4", "-")


TEXTS = st.text(st.sampled_from("ab 1`\nTranslation A:日"), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(TEXTS, st.lists(TEXTS, min_size=2, max_size=4), TEXTS)
def test_labels_lie_on_the_candidates_even_where_the_source_looks_like_one(source, texts, reference) -> None:
    source = f"{source}\n```\n\nTranslation A:\n```\n{texts[0]}\n```\nTranslation text:\n```\n{texts[0]}"
    prompts = {
        "AB": render_chatml(gqm_prompt(source, texts, "en", "de", "score")),
        "s": render_chatml(sqm_prompt(source, texts[0], "en", "de")),
    }
    for name, prompt in prompts.items():
        shown = [("text", texts[0], 3)] if name == "s" else list(zip("ABCD", texts, [7] * 4, strict=False))
        spans = read_spans([list(span) for span in labels_of(prompt, shown, reference)], prompt)
        marks = "".join(prompt[start:end] for start, end, label in spans if label in "+-")
        assert marks == "".join(text for _, text, _ in shown)
        assert spans[-1][1] == len(prompt) - len("\n```\n<|im_end|>\n<|im_start|>assistant\n")


@given(TEXTS, TEXTS)
def test_equal_texts_are_right_throughout_and_no_more_words_are_right_than_the_reference_has(text, other) -> None:
    assert all(right for *_, right in compare(text, text))
    assert sum(right for *_, right in compare(text, other)) <= len(list(compare(other, text)))


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'best' is no kind of judge: use one of gqm, sqm"):
        convert_sft_dense(tmp_path / "x.parquet", tmp_path / "x.jsonl", "best")
    with pytest.raises(UserError, match=r"does not end with .jsonl"):
        convert_sft_dense(tmp_path / "x.parquet", tmp_path / "x.parquet", "gqm")
