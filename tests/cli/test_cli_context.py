"""`grrm rank` and the converters with document context from the rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import invoke
from support.completions_server import CompletionsServer

from grrm import cli
from grrm.errors import UserError
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS

VERDICT = "B is best.\n\n### Final Ranking:\n\nB > A\n\n### Scores:\n\nB: 9, A: 4\n"
ROWS = [
    {"src_text": "Hallo", "trg_text": "Hello", "mt_texts": ["Hi", "Ho"], "document": "a", "position": 1},
    {"src_text": "Danke", "trg_text": "Thanks", "mt_texts": ["Ta", "To"], "document": "a", "position": 4},
    {"src_text": "Gut", "trg_text": None, "mt_texts": None, "document": "a", "position": 2},
]
LANGUAGES = ["--src-lang", "de", "--trg-lang", "en"]
CONTEXT = ["--judge-option", "context_segments=2"]


@pytest.fixture
def judge():
    with CompletionsServer(lambda *_: VERDICT) as server:
        yield server


def test_rank_takes_the_segments_before_a_source_from_its_rows(rank, judge):
    rank(ROWS, "--url", judge.url, *LANGUAGES, *CONTEXT)
    first, second = sorted((request["prompt"] for request in judge.requests), key=len)
    assert "As context" not in first
    before = "Source text:\n```\nHallo\n```\nTranslation text:\n```\nHello\n```\n\nSource text:\n```\nGut\n```\n\n"
    assert before + "Source text:\n```\nDanke\n" in second


def test_rank_without_the_option_shows_no_context(rank, judge):
    rank(ROWS, "--url", judge.url, *LANGUAGES)
    assert judge.requests
    assert not any("As context" in request["prompt"] for request in judge.requests)


def test_rows_without_documents_or_positions_are_a_sentence(rank, judge):
    for name, message in (
        ("document", "rows.jsonl row 1 and all others have no document"),
        ("position", "no position"),
    ):
        rows = [{key: value for key, value in row.items() if key != name} for row in ROWS]
        with pytest.raises(UserError, match=message):
            rank(rows, "--url", judge.url, *LANGUAGES, *CONTEXT)
    assert not judge.requests


@pytest.mark.parametrize("command", ["sft-gqm", "rl-gqm", "pairs-gqm", "sft-sqm", "rl-sqm"])
def test_converters_show_context(tmp_path, command):
    rows = [
        row | {"src_lang": "de", "trg_lang": "en", "scores": [3, 9], "analysis": "x", "analyses": ["x", "y"]}
        for row in ROWS[:2]
    ]
    source, out = tmp_path / "groups.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source)
    invoke("data", command, source, out, "--context-segments", 1)
    prompts = [json.dumps(row) for row in pq.read_table(out).to_pylist()]
    assert sum("As context" in prompt for prompt in prompts) == len(prompts) // 2


@pytest.mark.parametrize("command", ["sft-gqm", "rl-sqm"])
def test_converters_show_no_more_than_judges_do(command):
    options = {option.name: option for option in cli.grrm.commands["data"].commands[command].params}
    assert options["context_segments"].type.max == MAX_CONTEXT_SEGMENTS
