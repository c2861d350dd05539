"""What a checkpoint knows of its training: taken from the prompts, written beside the weights, read by one loader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grrm.data.convert import render_prompt
from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt, prompt_type_of
from grrm.models.trained_with import (
    RECORD_FILE,
    TrainedWith,
    check_same_prompts,
    checkpoint_template,
    read_trained_with,
    trained_with_prompts,
    training_file,
    write_trained_with,
)

TASK = TranslationTask("Hallo\nWelt", "de", "en")


@pytest.mark.parametrize("prompt_type", MT_PROMPT_TYPES)
def test_the_type_of_a_prompt_is_in_its_text(prompt_type: str) -> None:
    known = trained_with_prompts([(render_prompt(TASK, prompt_type), False)] * 2)
    assert known.prompt_type == prompt_type.removesuffix(".lastl")
    assert known.chat_template == ("none" if prompt_type == "SSR" else "chatml")
    assert known.language_pairs == (None if prompt_type == "SSR" else ("de-en",))


def test_a_source_that_quotes_a_prompt_of_another_type_does_not_change_the_type() -> None:
    quoted = mt_prompt("Hallo", "de", "en", "seedx")
    assert prompt_type_of(mt_prompt(quoted, "de", "en", "codeblock-think")) == "codeblock-think"
    assert prompt_type_of(mt_prompt("Ein Satz", "Klingon", "en", "Tower")) == "Tower"
    assert prompt_type_of("Name a colour.") is None


def test_prompts_that_differ_leave_their_type_open_and_other_rows_the_languages() -> None:
    both = [(render_prompt(TASK, name), False) for name in ("Tower", "seedx")]
    assert trained_with_prompts(both).prompt_type is None
    with_question = trained_with_prompts([both[0], ("Name a colour.", False)])
    assert (with_question.prompt_type, with_question.language_pairs) == ("Tower", None)
    bare = trained_with_prompts([(mt_prompt("Hallo", "de", "en", "Tower"), False)])
    assert bare.chat_template == "none"


def test_prompts_that_the_tokenizers_template_made_of_messages_name_it() -> None:
    prompt = mt_prompt("Hallo", "de", "en", "Tower")
    chat = trained_with_prompts([(f"[USER]{prompt}[MODEL]", True)])
    assert (chat.chat_template, chat.prompt_type, chat.language_pairs) == ("checkpoint", "Tower", ("de-en",))
    assert trained_with_prompts([(render_prompt(TASK, "Tower"), True)]).chat_template == "chatml"
    assert trained_with_prompts([("[USER]Judge these.[MODEL]", True)]).chat_template == "checkpoint"


def test_a_checkpoint_is_asked_under_its_template_and_a_contradiction_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint_template(tmp_path, None) == "chatml"
    write_trained_with(tmp_path, TrainedWith(chat_template="checkpoint"))
    assert checkpoint_template(tmp_path, None) == checkpoint_template(tmp_path, "checkpoint") == "checkpoint"
    assert not caplog.records
    assert checkpoint_template(tmp_path, "none") == "none"
    assert "was trained with the chat template checkpoint, and is asked with none" in caplog.text


def test_what_is_written_is_read_again_and_later_stages_add_to_it(tmp_path: Path) -> None:
    rows = tmp_path / "sft.jsonl"
    rows.write_text("{}\n")
    first = TrainedWith(
        prompt_type="Tower", chat_template="chatml", language_pairs=("de-en",), data=(training_file("sft", rows, 1),)
    )
    write_trained_with(tmp_path, first)
    assert read_trained_with(tmp_path) == first
    assert set(json.loads((tmp_path / RECORD_FILE).read_text())) == {
        "prompt_type", "chat_template", "language_pairs", "data"
    }  # fmt: skip
    later = TrainedWith(extractor_type="oneline", language_pairs=("en-de",), data=(training_file("rl", rows, 1),))
    both = later.after(first)
    assert (both.prompt_type, both.extractor_type) == ("Tower", "oneline")
    assert both.language_pairs == ("de-en", "en-de")
    assert [one.stage for one in both.data] == ["sft", "rl"]
    assert later.after(TrainedWith()).language_pairs == ("en-de",)
    rows.write_text("{} \n")
    assert training_file("sft", rows, 1).sha256 != first.data[0].sha256


def test_a_folder_without_the_file_knows_nothing_and_an_older_reward_model_what_it_recorded(tmp_path: Path) -> None:
    assert read_trained_with(tmp_path) == TrainedWith()
    settings = {"kind": "ranker", "trained_with": {"chat_template": "none", "language_pairs": ["de-en"]}}
    (tmp_path / "reward_model.json").write_text(json.dumps(settings))
    assert read_trained_with(tmp_path) == TrainedWith(chat_template="none", language_pairs=("de-en",))
    write_trained_with(tmp_path, TrainedWith(chat_template="chatml"))
    assert read_trained_with(tmp_path) == TrainedWith(chat_template="chatml")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"prompt_type": "poem"}',
        '{"extractor_type": 3}',
        '{"extractor_type": "poem"}',
        '{"data": [{}]}',
        "\xff",
    ],
)
def test_nonsense_is_one_sentence_with_the_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD_FILE).write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"grrm\.json' does not say what its model was trained with \(.*remove the fi"):
        read_trained_with(tmp_path)


def test_prompts_of_another_type_than_a_policy_learned_are_refused() -> None:
    tower = TrainedWith(prompt_type="Tower", chat_template="chatml")
    check_same_prompts("m", tower, "rl.jsonl", TrainedWith())
    check_same_prompts("m", TrainedWith(), "rl.jsonl", tower)
    check_same_prompts("m", tower, "rl.jsonl", TrainedWith(prompt_type="Tower.lastl"))
    with pytest.raises(
        UserError, match=r"'rl.jsonl' have the prompt type seedx, but 'm' was trained with Tower: conve"
    ):
        check_same_prompts("m", tower, "rl.jsonl", TrainedWith(prompt_type="seedx"))
    with pytest.raises(UserError, match="the chat template none, but 'm' was trained with chatml"):
        check_same_prompts("m", tower, "rl.jsonl", TrainedWith(prompt_type="Tower", chat_template="none"))
