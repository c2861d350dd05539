"""`grrm translate` asks a checkpoint as it was trained, and tells what contradicts that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.text_models import TextModel

from grrm.cli.commands.translate import translate
from grrm.engine import open as opening
from grrm.gqm.chat import render_chatml
from grrm.gqm.mt_prompts import mt_prompt
from grrm.judges.interface import OpenedGenerator
from grrm.models.trained_with import TrainedWith, write_trained_with


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Translates one line with a model that replies `reply` and knows `known`; returns result, prompts and template."""

    def run(known: TrainedWith, reply: str, *options: str, text: str = "Hallo\n"):
        write_trained_with(tmp_path, known)
        generator, templates = TextModel(lambda prompt: reply), []

        def open_checkpoint(folder, *, chat_template, **_):
            templates.append(chat_template)
            return OpenedGenerator(generator, render_chatml if chat_template == "chatml" else str, None)

        monkeypatch.setattr(opening, "open_checkpoint", open_checkpoint)
        arguments = ["-", "--model", str(tmp_path), "--retry", "0", "--out", str(tmp_path / "out.jsonl"), *options]
        result = CliRunner().invoke(translate, arguments, input=text)
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        return result.stderr, rows, generator.prompts, templates

    return run


PAIR = ("--src-lang", "de", "--trg-lang", "en")
TOWER = TrainedWith(prompt_type="Tower", chat_template="none", language_pairs=("de-en",))


def test_prompt_type_template_and_languages_are_the_checkpoints(ask):
    said, rows, prompts, templates = ask(TOWER, "Hello")
    assert prompts == [mt_prompt("Hallo", "de", "en", "Tower")]
    assert templates == ["none"]
    assert [(row["translation"], row["src_lang"], row["trg_lang"]) for row in rows] == [("Hello", "de", "en")]
    assert "trained" not in said


def test_a_reply_is_read_as_in_training(ask):
    known = TOWER.model_copy(update={"extractor_type": "oneline"})
    assert ask(known, "Two\nlines")[1][0]["translation"] is None
    assert ask(TOWER, "Two\nlines")[1][0]["translation"] == "Two\nlines"
    assert ask(known, "Two\nlines", "--prompt-type", "Tower.lastl")[1][0]["translation"] == "lines"


def test_an_option_counts_and_its_contradiction_is_told_in_a_sentence(ask):
    options = ("--prompt-type", "codeblock-think", "--chat-template", "chatml")
    said, rows, prompts, templates = ask(TOWER, "```\nHello\n```", *options)
    assert prompts == [render_chatml(mt_prompt("Hallo", "de", "en", "codeblock-think"))]
    assert (rows[0]["translation"], templates) == ("Hello", ["chatml"])
    assert "was trained with prompt type Tower, not codeblock-think: the option counts." in said
    assert "was trained with chat template none, not chatml: the option counts." in said


def test_languages_that_were_not_trained_on_are_told(ask):
    said, *_ = ask(TOWER, "Bonjour", "--src-lang", "de", "--trg-lang", "fr")
    assert "the model was not trained on de-fr (1 of 1 rows), but on de-en." in said


def test_most_rows_without_a_translation_are_told_with_what_helps(ask):
    said, *_ = ask(TOWER, "Hello", "--prompt-type", "codeblock-think")
    assert "give the prompt type that the model was trained with, such as Tower." in said
    block = TrainedWith(prompt_type="codeblock-think", chat_template="chatml")
    said, *_ = ask(block, "Hello", *PAIR)
    assert "no reply holds a translation as --prompt-type codeblock-think reads it: the model was trained so" in said
    said, *_ = ask(TrainedWith(), "Hello", *PAIR)
    assert "such as Tower." in said
