"""Translating lists of texts: what is asked again, and a status for every reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import python
from support.completions_server import CompletionsServer, Refuse
from support.text_models import by_source, cut_off

import grrm
from grrm.engine.open import OpenedGenerator
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.mt_prompts import mt_prompt
from grrm.inference.translate import attempt_temperature
from grrm.models.trained_with import TrainedWith, write_trained_with

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


def test_every_reply_has_a_status(open_script):
    open_script(
        {"eins": ["T1"], "zwei": [cut_off("T2")], "drei": [" "], "x" * 300: ["never asked"]}, max_prompt_tokens=300
    )
    sources = ["eins", "zwei", "drei", "x" * 300]
    result = grrm.translate("model", sources, "de", "en", prompt_type="Tower", retry=1)
    assert result["statuses"] == ["translated", "cut_off", "no_translation", "too_long"]
    assert result["responses"] == ["T1", "T2", "Translation Failed.", "Translation Failed."]
    assert result["raw_outputs"] == ["T1", "T2", " ", None]


def test_only_incomplete_sources_are_drawn_again_each_time_a_tenth_hotter(open_script):
    script = open_script({"eins": ["", "", "a"], "zwei": ["b"], "drei": ["", "c"]})
    result = grrm.translate("model", ["eins", "zwei", "drei"], "de", "en", prompt_type="Tower", temperature=0.0)
    assert result["responses"] == ["a", "b", "c"]
    assert [len(call["prompts"]) for call in script.calls] == [3, 2, 1]
    assert [call["temperature"] for call in script.calls] == [0.0, 0.1, 0.2]


def test_a_single_bad_reply_has_all_replies_of_its_source_drawn_again(open_script):
    open_script({"S": ["a", "", "", "b"]})
    result = grrm.translate("model", ["S"], "de", "en", prompt_type="Tower", sampling_n=2, retry=1)
    assert result["responses"] == [["Translation Failed.", "b"]]


@given(st.floats(0, 2), st.integers(0, 30))
def test_temperature_never_falls_and_retries_do_not_take_it_above_one(temperature, attempt):
    now, then = attempt_temperature(temperature, attempt), attempt_temperature(temperature, attempt + 1)
    assert temperature <= now <= then <= max(temperature, 1.0)
    assert attempt_temperature(temperature, 0) == temperature


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
        ({"retry": -1}, ValueError, "negative"),
        ({"src_langs": ["de", "de"]}, ValueError, "2 languages for 1 rows"),
        ({"prompt_type": "poem"}, UserError, "translation prompt_type 'poem'"),
        ({"trg_langs": "xx"}, UserError, "unknown language 'xx'"),
        ({}, UserError, "'/nowhere' does not exist"),
    ],
)
def test_mistakes_are_found_before_anything_is_generated(options, error, message):
    languages = {"src_langs": "de", "trg_langs": "en"}
    with pytest.raises(error, match=message):
        grrm.translate("/nowhere", ["a"], **languages | options)


@pytest.mark.parametrize(
    ("sources", "message"),
    [("abc", "src_list is 'abc'; give a list"), (["a", None], r"src_list\[1\] is None; give text")],
)
def test_what_is_no_list_of_texts_is_refused(sources, message):
    with pytest.raises(UserError, match=message):
        grrm.translate("/nowhere", sources, "de", "en")


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
        result = grrm.translate(None, ["Hallo", "Danke"], "de", "en", urls=[server.url], retry=3)
    assert len(server.requests) == 2  # what had no room once has none later
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
