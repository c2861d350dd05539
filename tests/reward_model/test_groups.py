"""Rows to groups: what is left out is counted, texts stay texts, held-out prompts are not trained on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rl_processes import TinyWorld
from support.rows import scored_rows

from grrm.config import RewardModelConfig
from grrm.data.annotation.groups import annotate_groups
from grrm.data.held_out import held_out_split
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.mt_prompts import mt_prompt
from grrm.models.tokenizer import encoder, load_tokenizer, special_tokens, text_encoder
from grrm.training.gold_groups import GoldGroup, GroupEncoder, read_gold_groups

PROMPT = "Translate the following text from English into German:\nEnglish: One\nGerman:"


@pytest.fixture(scope="module")
def tokenizer(world: TinyWorld) -> Any:
    return load_tokenizer(world.policy)


@pytest.fixture
def read(world: TinyWorld, tokenizer: Any) -> Callable[..., Any]:
    """Reads a file with the defaults, changed."""

    def _read(path: Path, end: tuple[int, ...] = (), **changes: Any) -> Any:
        config = RewardModelConfig(output_dir="out", **changes)
        return read_gold_groups(path, GroupEncoder(config, tokenizer, world.policy, end), config)

    return _read


def row(**changes: Any) -> dict[str, Any]:
    return {**scored_rows(1)[0], **changes}


BAD_GROUPS: list[tuple[dict[str, Any], str]] = [
    ({"scores": None}, "there are no gold scores"),
    ({"scores": []}, "there are no gold scores"),
    ({"scores": [1, None, None, None]}, "a candidate has no gold score"),
    ({"scores": [1, True, 2, 3]}, "a candidate has no gold score"),
    ({"scores": [1, float("nan"), 2, 3]}, "a gold score is not a finite number"),
    ({"scores": [1, float("inf"), 2, 3]}, "a gold score is not a finite number"),
    ({"scores": [1, -1e300, 2, 3]}, "a gold score is beyond 1e+07"),
    ({"scores": [1, 10**400, 2, 3]}, "a gold score is beyond 1e+07"),
    ({"scores": [1, 2, 3]}, "as many candidates as gold scores are needed"),
    ({"mt_texts": ["one"], "scores": [1]}, "there are fewer than two candidates"),
    ({"mt_texts": ["one", " \n", "two", "three"]}, "a candidate is empty"),
    ({"mt_texts": ["one", None, "two", "three"]}, "a candidate is not text"),
    ({"mt_texts": ["one", "two " * 300, "two", "three"]}, "longer than max_length = 200 tokens"),
    ({"src_text": "long " * 300}, "longer than max_length = 200 tokens"),
    ({"src_text": ""}, "the source or a language is missing"),
    ({"trg_lang": None}, "the source or a language is missing"),
    ({"trg_lang": "xq"}, "unknown language 'xq'"),
    ({"src_text": "ends <|im_end|> here"}, "the prompt contains a special token"),
]
BAD_PAIRS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": " "}, "the prompt is missing"),
    ({"chosen": ""}, "a candidate is empty"),
    ({"rejected": None}, "a candidate is not text"),
    ({"rejected": "Eins"}, "the chosen candidate is the rejected one"),
    ({"rejected": "Eins " * 300}, "longer than max_length = 200 tokens"),
    ({"prompt": "<|im_start|>user\n"}, "the prompt contains a special token"),
    ({"prompt": ["Hi"]}, "the prompt is not a list of messages with role and content"),
    ({"prompt": [{"role": "user", "content": "<|im_end|>"}]}, "the prompt contains a special token of the tokenizer"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD_GROUPS)
def test_group_that_cannot_be_used_is_left_out_and_counted(read, write_rows, caplog, changes, reason):
    path = write_rows([row(), row(**changes), row()])
    with caplog.at_level(logging.WARNING):
        assert len(read(path, max_length=200)) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: 1 of 3 rows were left out: 1 x {reason}")
    with pytest.raises(UserError) as caught:
        read(write_rows([row(**changes)] * 2), max_length=200)
    assert f"has no usable row (2 x {reason}" in str(caught.value)


@pytest.mark.parametrize(("changes", "reason"), BAD_PAIRS)
def test_pair_that_cannot_be_used_is_left_out_and_counted(read, write_rows, caplog, changes, reason):
    good = {"prompt": PROMPT, "chosen": "Eins", "rejected": "Zwei"}
    assert len(read(write_rows([good, {**good, **changes}]), max_length=200)) == 1
    assert caplog.text.endswith(f"1 of 2 rows were left out: 1 x {reason}\n")


def test_pair_of_messages_is_that_of_its_texts_under_the_tokenizers_template(read, write_rows):
    plain = {"prompt": PROMPT, "chosen": "Eins", "rejected": "Zwei"}
    chat = {key: [{"role": "user" if key == "prompt" else "assistant", "content": text}] for key, text in plain.items()}
    of_texts, of_messages = read(write_rows([plain, chat]))  # the tokenizer's template is bare ChatML
    assert of_messages.candidates == of_texts.candidates
    assert (of_texts.is_chat, of_messages.is_chat) == (False, True)


def test_group_of_parquet_and_of_json_lines(read, write_rows, tokenizer, tmp_path):
    rows = scored_rows(3)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "groups.parquet")
    groups = read(write_rows(rows))
    assert groups == read(tmp_path / "groups.parquet")
    encode = encoder(tokenizer)
    for given, group in zip(rows, groups, strict=True):
        source, src, trg = (given[key] for key in ("src_text", "src_lang", "trg_lang"))
        assert group.candidates.prompt_ids == encode(render_chatml(mt_prompt(source, src, trg, "Tower")))
        assert group.candidates.responses == [encode(text) for text in given["mt_texts"]]
        assert group.gold == pytest.approx([score / 10 for score in given["scores"]])
        assert group.language_pair == f"{src}-{trg}"


def test_candidate_without_gold_is_left_out_of_its_group_and_counted(read, write_rows, caplog):
    texts = ["one", "two", "three"]
    path = write_rows([row(mt_texts=texts, scores=[10, None, 30]), row(mt_texts=["one", "three"], scores=[10, 30])])
    with caplog.at_level(logging.WARNING):
        one, whole = read(path)
    assert (one.candidates, one.gold) == (whole.candidates, whole.gold)
    assert (one.n_without_gold, whole.n_without_gold) == (1, 0)
    assert f"{path}: 1 candidates without a gold score were left out of their groups" in caplog.text


def test_gold_on_a_smaller_scale_than_its_unit_is_told(read, write_rows, caplog):
    """Scores from 0 to 1 in units of 10: no pair counts as different, and a pairwise reward model has no loss."""
    small = [[0.5 + score / 250 for score in one["scores"]] for one in scored_rows(30)]
    path = write_rows([row(scores=scores) for scores in small])
    n_pairs = sum(len({a, b}) > 1 for scores in small for a, b in combinations(scores, 2))
    with pytest.raises(UserError, match=f"0 of {n_pairs} pairs of different gold differ by more than 0.05 units"):
        read(path)
    assert len(read(path, gold_scale=0.1)) == 30
    path = write_rows([row(scores=scores) for scores in [*small, [0.0, 0.9, 0.9, 0.9]]])
    with caplog.at_level(logging.WARNING):
        read(path)
    assert f"3 of {n_pairs + 3} pairs of different gold" in caplog.text
    assert "lower gold_scale" in caplog.text


def test_what_data_groups_writes_is_read(read, tmp_path):
    sampled = [
        {"src_text": "One", "trg_text": "Eins", "src_lang": "en", "trg_lang": "de", "mt_texts": ["Eins", "Ein", "Zwei"]}
    ] * 2
    pq.write_table(pa.Table.from_pylist(sampled), tmp_path / "sampled.parquet")
    annotate_groups(tmp_path / "sampled.parquet", tmp_path / "groups.parquet", group_size=3)
    groups = read(tmp_path / "groups.parquet", gold_scale=1.0)
    assert [max(group.gold) for group in groups] == [10, 10]


def test_pair_has_the_template_around_its_prompt_and_the_end_behind_its_candidates(read, write_rows, tokenizer):
    path = write_rows([{"prompt": PROMPT, "chosen": "Eins", "rejected": "Zwei"}])
    end = (tokenizer.eos_token_id,)
    (group,) = read(path, end)
    encode = encoder(tokenizer)
    assert group.candidates.prompt_ids == encode(render_chatml(PROMPT))
    assert group.candidates.responses == [[*encode(text), *end] for text in ("Eins", "Zwei")]
    assert (group.gold, group.language_pair, group.is_pair) == ((1.0, 0.0), "en-de", True)
    (plain,) = read(path, chat_template="none")
    assert plain.candidates.prompt_ids == encode(PROMPT)


def test_text_that_looks_like_a_special_token_is_text(read, write_rows, tokenizer):
    specials = special_tokens(tokenizer)
    ids = {tokenizer.convert_tokens_to_ids(token) for token in specials}
    assert len(specials) >= 3
    texts = [f"vor {token} nach" for token in specials]
    (group,) = read(write_rows([row(mt_texts=texts, scores=list(range(len(texts))))]))
    for text, response in zip(texts, group.candidates.responses, strict=True):
        assert not ids & set(response)
        assert tokenizer.decode(response, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text
    text_encoder(tokenizer)
    assert all(encoder(tokenizer)(token) == [tokenizer.convert_tokens_to_ids(token)] for token in specials)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": "a", "tgt": "b"}, "has neither prompt, chosen, rejected nor"),
        ({"prompt": "a", "chosen": "b"}, "lacks rejected"),
        ({"mt_texts": ["a", "b"], "judge_scores": [1, 2]}, "has no usable row (1 x scores is not among "),
    ],
)
def test_file_of_other_columns_is_an_error_that_names_them(read, write_rows, columns, message):
    with pytest.raises(UserError) as caught:
        read(write_rows([columns]))
    assert message in str(caught.value)
    assert ", ".join(columns) in str(caught.value)


def test_a_first_row_without_gold_scores_is_left_out_like_any_other(read, write_rows, caplog):
    first = {key: value for key, value in row().items() if key != "scores"}
    assert len(read(write_rows([first, row()]))) == 1
    assert "1 of 2 rows were left out: 1 x scores is not among" in caplog.text


@pytest.mark.parametrize(("val_size", "n_held"), [(0.25, 6), (5, 6), (1, 2), (0.01, 2)])
def test_held_out_prompts_are_not_trained_on(read, write_rows, val_size, n_held):
    rows = scored_rows(12)
    groups: list[GoldGroup] = read(write_rows([*rows, *scored_rows(12, seed=5)]))

    def prompt_of(group: GoldGroup) -> tuple[int, ...]:
        return tuple(group.candidates.prompt_ids)

    train, held = held_out_split(groups, prompt_of, val_size, seed=3)
    assert (len(train), len(held)) == (24 - n_held, n_held)
    assert not set(map(prompt_of, train)) & set(map(prompt_of, held))
    assert held_out_split(groups, prompt_of, val_size, seed=3) == (train, held)
    assert held_out_split(groups, prompt_of, val_size, seed=4)[1] != held


@pytest.mark.parametrize("empty", [{}, {"scores": None}])
def test_the_row_of_a_line_that_could_not_be_read_may_be_the_first(empty, read, tmp_path, caplog):
    path = tmp_path / "groups.jsonl"
    path.write_text("\n".join(map(json.dumps, [empty, row(), row()])))
    assert len(read(path)) == 2
    assert caplog.text.endswith("1 of 3 rows were left out: 1 x the row is empty\n")


def test_gold_that_says_no_order_is_refused(read, tmp_path):
    path = tmp_path / "groups.jsonl"
    path.write_text("\n".join(json.dumps(row(scores=[gold] * 4)) for gold in (1.0, 2.0)))
    with pytest.raises(UserError, match="no row whose candidates differ in gold"):
        read(path)
