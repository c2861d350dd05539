"""Which characters of a reply carry its judgement, from the converters to the tokens of a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import group, write_parquet

from grrm.data.bpe import train_bpe
from grrm.data.convert import ConversionReport
from grrm.data.converters.gqm import convert_sft_gqm
from grrm.data.converters.sqm import convert_sft_sqm, rubric_judge
from grrm.data.dataset import SftItem, read_sft_items
from grrm.errors import UserError
from grrm.gqm.prompts import GQM_TASKS, decisive_spans, render_response
from grrm.models.tokenizer import _decoded_spans, encoder, load_tokenizer, token_spans

ANALYSIS = "A: 3 > B, so C.\nÜber 😀 wörter"


def taught(report: ConversionReport) -> list[tuple[str, list[str]]]:
    """Each reply, and the pieces of it that are decisive."""
    rows = [json.loads(line) for line in report.path.read_text(encoding="utf-8").splitlines()]
    return [(row["tgt"], [row["tgt"][start:end] for start, end in row["decisive"]]) for row in rows]


@pytest.mark.parametrize("prompt_type", GQM_TASKS)
def test_letters_signs_and_scores_of_a_verdict_are_decisive(tmp_path: Path, prompt_type: str) -> None:
    source = write_parquet(tmp_path / "in.parquet", [group(scores=[3, 10, 3], analysis=ANALYSIS)])
    ((reply, pieces),) = taught(convert_sft_gqm(source, tmp_path / "out.jsonl", prompt_type=prompt_type))
    assert reply.startswith(ANALYSIS)
    ranking, scores = ["B", ">", "A", "=", "C"], {"score": ["3", "10", "3"], "ranking_score": ["10", "3", "3"]}
    assert pieces == (ranking if "ranking" in prompt_type else []) + scores.get(prompt_type, [])


def test_score_of_a_single_judge_is_decisive(tmp_path: Path) -> None:
    source = write_parquet(
        tmp_path / "in.parquet", [group(scores=[10, 1], mt_texts=["a", "b"], analyses=["10, 1", "1 of 10"])]
    )
    rows = taught(convert_sft_sqm(source, tmp_path / "sqm.jsonl"))
    assert sorted(pieces for _, pieces in rows) == [["1"], ["10"]]
    assert all(reply.endswith(pieces[0]) for reply, pieces in rows)
    graded = convert_sft_sqm(source, tmp_path / "rubric.jsonl", analyses_key=None, judge=rubric_judge())
    assert sorted(taught(graded)) == [("Total Score: 1/10", ["1"]), ("Total Score: 10/10", ["10"])]


@given(st.lists(st.integers(0, 10), min_size=2, max_size=8), st.sampled_from([*GQM_TASKS]))
def test_a_verdict_is_known_from_its_decisive_characters(scores: list[int], prompt_type: str) -> None:
    verdict = render_response("", scores, prompt_type)
    pieces = [verdict[start:end] for start, end in decisive_spans(verdict)]
    numbers = [int(piece) for piece in pieces if piece.isdigit()]
    letters = [piece for piece in pieces if piece.isalpha()]
    assert sorted(numbers) == (sorted(scores) if "score" in prompt_type else [])
    assert sorted(letters) == (sorted("ABCDEFGH"[: len(scores)]) if "ranking" in prompt_type else [])
    if prompt_type == "score":
        assert numbers == scores


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return load_tokenizer(train_bpe(["A: 3, B: 10 > C", "user"], tmp_path_factory.mktemp("bpe"), 300))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_spans_are_those_of_the_tokens(tokenizer, text: str) -> None:
    ids, spans = encoder(tokenizer)(text), token_spans(tokenizer)(text)
    assert len(spans) == len(ids)
    assert {at for start, end in spans for at in range(start, end)} == set(range(len(text)))
    for token, (start, end) in zip(ids, spans, strict=True):
        piece = tokenizer.decode([token], clean_up_tokenization_spaces=False)
        assert "\ufffd" in piece or piece == text[start:end]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_spans_by_decoding_agree_with_offsets(text: str) -> None:
    """Tokens of one UTF-8 byte each, the hardest case."""
    spans = _decoded_spans(text, list(text.encode()), lambda ids: bytes(ids).decode(errors="ignore"))
    assert spans == [(at, at + 1) for at, letter in enumerate(text) for _ in letter.encode()]


def dataset(tmp_path: Path, tokenizer, row: dict, **options) -> list[SftItem]:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return read_sft_items(path, encoder(tokenizer), 0, 200, spans_of=token_spans(tokenizer), **options)


@pytest.mark.parametrize("train_on_prompt", [False, True])
def test_a_token_with_a_decisive_character_is_decisive(tmp_path: Path, tokenizer, train_on_prompt: bool) -> None:
    row = {"src": "user", "tgt": "😀 A: 10", "decisive": [[5, 7]]}
    (item,) = dataset(tmp_path, tokenizer, row, train_on_prompt=train_on_prompt)
    learned = item.input_ids[item.prompt_len :]
    pieces = "".join(tokenizer.decode([learned[at]]) for at in item.decisive)
    assert pieces.strip() == "10"
    assert dataset(tmp_path, tokenizer, {"src": "user", "tgt": "A: 10"})[0].decisive is None


@pytest.mark.parametrize("decisive", ["A", [1], [[0, 1, 2]], [[0, "1"]], [[1, 1]], [[0, 9]], [[-1, 2]], [[True, 2]]])
def test_a_wrong_range_is_told_by_its_line(tmp_path: Path, tokenizer, decisive: object) -> None:
    with pytest.raises(UserError, match=r"rows.jsonl line 1: 'decisive' (must be a list of|has a range outside)"):
        dataset(tmp_path, tokenizer, {"src": "user", "tgt": "A: 10", "decisive": decisive})
