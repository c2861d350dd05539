"""Rankers and Python's `rank` with document context: the model reads what it was trained on."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.completions_server import CompletionsServer
from support.judged_groups import group_of
from support.rows import write_jsonl
from support.tiny_policy import write_tiny_reward_model

import grrm
from grrm.config import RewardModelConfig
from grrm.errors import UserError
from grrm.gqm.groups import ContextSegment, Group, TranslationTask
from grrm.inference.reward_scoring import open_reward_judge
from grrm.models.reward_models import load_reward_model, save_reward_model
from grrm.models.tokenizer import load_tokenizer
from grrm.models.trained_with import TrainedWith
from grrm.training.gold_groups import GroupEncoder, read_gold_groups

open_judge = partial(open_reward_judge, own_process=False)
TEXTS = ["Good morning", "Good night"]
ROWS = [
    {
        "src_text": source,
        "trg_text": translation,
        "src_lang": "de",
        "trg_lang": "en",
        "document": "letter",
        "position": position,
        "mt_texts": TEXTS,
        "scores": [5, 3],
    }
    for position, (source, translation) in enumerate([("Hallo", "Hello"), ("Anna", None), ("Guten Morgen", "x")])
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_tiny_reward_model(tmp_path_factory.mktemp("ranker"), "ranker", max_positions=1024, compare="group")
    model = load_reward_model(path)
    model.trained_with = TrainedWith(context_segments=2)
    save_reward_model(model, path)
    return path


def in_document(context) -> Group:
    group = group_of(TEXTS, source="Guten Morgen")
    return Group("g", TranslationTask("Guten Morgen", "de", "en", context=context), group.candidates)


def test_a_ranker_reads_the_context_that_it_was_trained_with(folder, tmp_path, monkeypatch):
    rows = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    config = RewardModelConfig(output_dir="out", context_segments=2)
    trained = read_gold_groups(rows, GroupEncoder(config, load_tokenizer(folder), folder), config)
    seen: list = []

    def score_groups(model, groups, *, max_tokens):
        seen.extend(groups)
        return [[1.0, 2.0] for _ in groups]

    monkeypatch.setattr("grrm.models.reward_models.score_groups", score_groups)
    open_judge(folder).judge([in_document((ContextSegment("Hallo", "Hello"), ContextSegment("Anna", None)))])
    assert seen == [trained[2].candidates]
    prompt = load_tokenizer(folder).decode(seen[0].prompt_ids)
    assert (
        "Source text:\n```\nHallo\n```\nTranslation text:\n```\nHello\n```\n\nSource text:\n```\nAnna\n```\n\n"
        in prompt
    )


def test_context_changes_the_scores_of_a_ranker(folder):
    judge = open_judge(folder)
    first, second = judge.judge([in_document(()), in_document((ContextSegment("Hallo", "Hello"),))])
    assert first.scores != second.scores


def test_a_ranker_with_context_refuses_a_source_without_its_document(folder):
    with pytest.raises(UserError, match="reads 2 preceding segments"):
        open_judge(folder).judge([in_document(None)])


def test_training_rows_without_documents_are_a_sentence(folder, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({name: value for name, value in ROWS[0].items() if name != "document"}) + "\n")
    config = RewardModelConfig(output_dir="out", context_segments=2)
    with pytest.raises(UserError, match=r"rows.jsonl row 1 and all others have no document"):
        read_gold_groups(rows, GroupEncoder(config, load_tokenizer(folder), folder), config)


def test_rank_shows_the_contexts_that_it_is_given():
    with CompletionsServer(lambda *_: "### Final Ranking:\n\nB > A\n\n### Scores:\n\nB: 9, A: 4\n") as server:
        result = grrm.rank(
            None,
            ["Guten Morgen"],
            [TEXTS],
            "de",
            "en",
            contexts=[[("Hallo", "Hello")]],
            context_segments=1,
            urls=[server.url],
        )
        assert result["scores"] == [[4.0, 9.0]]
        assert "Source text:\n```\nHallo\n```\nTranslation text:\n```\nHello\n" in server.requests[0]["prompt"]
        with pytest.raises(UserError, match="columns document and position"):
            grrm.rank(None, ["Hallo"], [TEXTS], "de", "en", context_segments=1, urls=[server.url])
        with pytest.raises(UserError, match=r"contexts\[0\] holds 'Hallo'; give pairs"):
            grrm.rank(None, ["Hallo"], [TEXTS], "de", "en", contexts=[["Hallo"]], urls=[server.url])
        with pytest.raises(ValueError, match="2 contexts for 1 sources"):
            grrm.rank(None, ["Hallo"], [TEXTS], "de", "en", contexts=[[], []], urls=[server.url])
