"""Translating lists of texts: the reference's results, and a status for every reply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import python
from support.completions_server import CompletionsServer, Refuse
from support.text_models import by_source, cut_off

import grrm
from grrm.engine.open import OpenedGenerator
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.mt_prompts import mt_prompt
from grrm.models.trained_with import TrainedWith, write_trained_with

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "retry.jsonl"
BLOCK = "t\n```\nT\n```"


@pytest.fixture
def open_script(monkeypatch):
    """Makes opening a model answer with a script; returns it and the templates that were asked for."""

    def install(replies, max_prompt_tokens=None):
        script = by_source(replies)

        def open_generator(model, *, chat_template, **opening):
            script.template = chat_template
            render = render_chatml if chat_template == "chatml" else str
            return OpenedGenerator(script, render, max_prompt_tokens)

        monkeypatch.setattr("grrm.inference.batch_calls.open_generator", open_generator)
        return script

    return install


def golden():
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows if row["fn"] == "mt.func_call"]


@pytest.mark.parametrize("row", golden())
def test_responses_outputs_and_rounds_are_the_references(row, open_script):
    given = dict(row["input"])
    script = open_script(given.pop("script"))
    result = grrm.translate("model", **given)
    wanted = row["expected"]
    assert {key: result[key] for key in ("responses", "raw_outputs")} == wanted["result"]
    sent = [(len(call["prompts"]), call["max_new_tokens"], call["top_p"]) for call in script.calls]
    assert sent == [(call["n_prompts"] * call["n"], call["max_tokens"], call["top_p"]) for call in wanted["calls"]]
    assert [call["temperature"] for call in script.calls] == pytest.approx(
        [call["temperature"] for call in wanted["calls"]]
    )


def test_every_reply_has_a_status(open_script):
    open_script(
        {"eins": ["T1"], "zwei": [cut_off("T2")], "drei": [" "], "x" * 300: ["never asked"]}, max_prompt_tokens=300
    )
    sources = ["eins", "zwei", "drei", "x" * 300]
    result = grrm.translate("model", sources, "de", "en", prompt_type="Tower", retry=1)
    assert result["statuses"] == ["translated", "cut_off", "no_translation", "too_long"]
    assert result["responses"] == ["T1", "T2", "Translation Failed.", "Translation Failed."]
    assert result["raw_outputs"] == ["T1", "T2", " ", None]


def test_samples_of_a_source_have_streams_of_their_own_in_any_batch(open_script):
    seeds = []
    for batch_rows in (1, 3):
        script = open_script({"S": [BLOCK]})
        result = grrm.translate("m", ["S1", "S2", "S3"], "de", "en", sampling_n=2, batch_rows=batch_rows)
        assert result["responses"] == [["T", "T"]] * 3
        seeds.append(script.seeds)
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 6


@pytest.mark.parametrize(
    ("options", "template"),
    [
        ({"prompt_type": "Tower"}, "chatml"),
        ({"prompt_type": "Tower", "chat_template": "checkpoint"}, "checkpoint"),
        ({"prompt_type": "Tower", "use_chat_template": False}, "none"),
        ({"prompt_type": "SSR"}, "none"),
    ],
)
def test_which_template_is_asked_for(open_script, options, template):
    script = open_script({"S": ["<answer>T</answer>"]})
    grrm.translate("m", ["S"], "de", "en", **options)
    assert script.template == template


def test_the_prompt_is_the_chat_turn_of_the_type(open_script):
    script = open_script({"S": ["T"]})
    grrm.translate("m", ["S"], ["German"], ["fr"], prompt_type="Tower")
    assert script.prompts == [
        render_chatml("Translate the following text from German into French:\nGerman: S\nFrench:")
    ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampling_n": 0}, ValueError, "at least 1"),
        ({"src_langs": ["de", "de"]}, ValueError, "2 languages for 1 rows"),
        ({"prompt_type": "poem"}, UserError, "translation prompt_type 'poem'"),
        ({"trg_langs": "xx"}, UserError, "unknown language 'xx'"),
        ({}, UserError, "'/nowhere' does not exist"),
    ],
)
def test_mistakes_are_found_before_anything_is_generated(options, error, message):
    given = {"src_langs": "de", "trg_langs": "en"} | options
    with pytest.raises(error, match=message):
        grrm.translate("/nowhere", ["a"], **given)


def test_no_rows_ask_nobody(open_script):
    script = open_script({})
    assert grrm.translate("m", [], "de", "en")["responses"] == []
    assert script.calls == []


def test_a_source_that_a_server_has_no_room_for_is_too_long_and_the_others_are_translated():
    def reply(body, _):
        if "Danke" in body["prompt"]:
            return Refuse(400, {"error": {"message": "the prompt exceeds the available context size"}})
        return BLOCK

    with CompletionsServer(reply) as server:
        result = grrm.translate(None, ["Hallo", "Danke"], "de", "en", urls=[server.url], retry=1)
    assert result["statuses"] == ["translated", "too_long"]
    assert result["responses"] == ["T", "Translation Failed."]
    assert result["raw_outputs"] == [BLOCK, None]


def test_a_process_that_translates_says_nothing_of_its_own(tmp_path):
    from support.tiny_policy import write_tiny_checkpoint

    call = "import sys, grrm; grrm.translate(sys.argv[1], ['Hallo'], 'de', 'en', max_new_tokens=2, retry=0)"
    done = python("-c", call, write_tiny_checkpoint(tmp_path / "model"))
    assert done.returncode == 0
    assert [line for line in (done.stdout + done.stderr).splitlines() if "INFO" in line] == []


def test_a_checkpoint_is_asked_as_it_was_trained_unless_an_argument_says_otherwise(open_script, tmp_path):
    write_trained_with(tmp_path, TrainedWith(prompt_type="Tower", chat_template="none", extractor_type="oneline"))
    script = open_script({"S": ["T"]})
    assert grrm.translate(tmp_path, ["S"], "de", "en")["responses"] == ["T"]
    assert (script.template, script.prompts) == ("none", [mt_prompt("S", "de", "en", "Tower")])
    script = open_script({"S": [BLOCK]})
    assert grrm.translate(tmp_path, ["S"], "de", "en", prompt_type="codeblock-think")["responses"] == ["T"]
    assert script.prompts == [mt_prompt("S", "de", "en", "codeblock-think")]
