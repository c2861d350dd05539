"""Tokenizers of checkpoint folders, whichever library wrote them."""

import json
import shutil

import pytest
from tokenizers import Tokenizer

from grrm.data.bpe import train_bpe
from grrm.errors import UserError
from grrm.models.chat_templates import chat_renderer
from grrm.models.checkpoint import read_config
from grrm.models.tokenizer import encoder, load_tokenizer, reply_ends, special_tokens, token_id

TEXT = "<|im_start|>user\nTranslate Guten Morgen<|im_end|>\n"


@pytest.mark.parametrize("named", ["TokenizersBackend", "Qwen2Tokenizer", "Qwen2TokenizerFast", "LlamaTokenizer"])
def test_a_folder_that_transformers_5_wrote_reads_as_the_one_it_came_from(tmp_path, named):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path / "as_ours", 300)
    ours = load_tokenizer(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "chat_template.jinja").write_text(config.pop("chat_template"), encoding="utf-8")
    kept = {key: config[key] for key in ("eos_token", "pad_token")}
    theirs = {**kept, "tokenizer_class": named, "backend": "tokenizers", "is_local": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(theirs), encoding="utf-8")
    (folder / "special_tokens_map.json").unlink(missing_ok=True)

    read = load_tokenizer(folder)
    assert (read.eos_token_id, read.pad_token_id, len(read)) == (ours.eos_token_id, ours.pad_token_id, len(ours))
    ids = read(TEXT, add_special_tokens=False)["input_ids"]
    assert ids == ours(TEXT, add_special_tokens=False)["input_ids"]
    assert read.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special_tokens=True)
    assert chat_renderer("checkpoint", read, folder)("x") == chat_renderer("checkpoint", ours, folder)("x")


def test_a_folder_with_the_files_of_a_slow_tokenizer_beside_is_read_by_its_own_rules(tmp_path):
    """As Qwen's folders are: the slow tokenizer drops blanks beside special tokens and splits those that are not."""
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path / "stock", 300)
    rules = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rules.add_tokens(["<think>"])
    rules.save(str(folder / "tokenizer.json"))
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    pairs = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]), encoding="utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings |= {"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    tokenizer = load_tokenizer(folder)
    tokenizer.save_pretrained(str(tmp_path / "saved"))
    for read in (tokenizer, load_tokenizer(tmp_path / "saved")):
        for text in (TEXT + "<|im_start|>assistant\n", "<think>\nGuten<|im_end|>\n"):
            assert encoder(read)(text) == rules.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("stored", ["settings", "file"])
def test_the_chat_template_is_saved_in_both_places(tmp_path, stored):
    folder, template = (
        train_bpe(["user\nTranslate Guten Morgen"], tmp_path / "start", 300),
        "{{ messages[0].content }}!",
    )
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    before = config.pop("chat_template")
    settings = config | {"chat_template": template if stored == "settings" else before}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if stored == "file":
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    for stage in ("sft", "rl"):
        load_tokenizer(folder).save_pretrained(str(tmp_path / stage))
        folder = tmp_path / stage
    assert (folder / "chat_template.jinja").read_text(encoding="utf-8") == template
    saved = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert saved["chat_template"] == template
    assert chat_renderer("checkpoint", load_tokenizer(folder), folder)("Hi") == "Hi!"


NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "{{ messages[0].content }}!"}]
BREAKS = {"{{ messages[0].content }}!\n": "Hi!", "{{ messages[0].content }}!\n\n": "Hi!\n"}


@pytest.mark.parametrize(
    ("place", "stored", "prompt"),
    [("settings", NAMED, "Hi!"), *((place, *one) for place in ("settings", "file") for one in BREAKS.items())],
)
def test_a_template_is_rendered_as_transformers_renders_it(tmp_path, place, stored, prompt):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path / "start", 300)
    if place == "file":
        (folder / "chat_template.jinja").write_text(stored, encoding="utf-8")
    else:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": stored}))
    for stage in ("sft", "rl"):
        tokenizer = load_tokenizer(folder)
        assert chat_renderer("checkpoint", tokenizer, folder)("Hi") == prompt
        tokenizer.save_pretrained(str(tmp_path / stage))
        folder = tmp_path / stage


def test_a_template_file_that_cannot_be_read_stops_only_those_who_want_it(tmp_path):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300)
    (folder / "chat_template.jinja").write_text("{% generation %}", encoding="utf-8")
    tokenizer = load_tokenizer(folder)
    assert "x" in chat_renderer("chatml", tokenizer, folder)("x")
    with pytest.raises(UserError, match=r"chat_template.jinja' cannot be read .*: correct it, or use"):
        chat_renderer("checkpoint", tokenizer, folder)


@pytest.mark.parametrize("template", ["{% for %}", "{% for i in range(10**9) %}x{% endfor %}", "{{ 1 // 0 }}"])
def test_a_stored_template_that_fails_is_one_sentence(tmp_path, template):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": template}), encoding="utf-8")
    with pytest.raises(UserError, match=r"has no tokenizer that can be read|cannot be rendered"):
        chat_renderer("checkpoint", load_tokenizer(folder), folder)


def test_the_folder_of_a_run_that_has_not_ended_says_how_to_get_its_model(tmp_path):
    for get in (load_tokenizer, read_config):
        with pytest.raises(UserError, match=r"has no (tokenizer that can be read|config.json: pass a checkpoint)"):
            get(tmp_path)
    (tmp_path / "trainer.log").touch()
    for get in (load_tokenizer, read_config):
        with pytest.raises(UserError, match=r"its training has not ended; run that command again$"):
            get(tmp_path)
    for step in (5, 40, 100, "own-200"):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for get in (load_tokenizer, read_config):
        with pytest.raises(UserError, match=r"run that command again, or name .*checkpoint-100$"):
            get(tmp_path)


def test_a_control_token_that_no_setting_names_is_known_as_one(tmp_path):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300, ["<|user|>"])
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del config["added_tokens_decoder"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert {"<|user|>", "<|im_start|>", "<|im_end|>"} <= {*special_tokens(load_tokenizer(folder))}


def test_texts_end_with_each_special_token_that_the_model_lists(tmp_path):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300, ["<|eot|>"])
    tokenizer = load_tokenizer(folder)
    (eos,), eot, word = reply_ends(tokenizer), token_id(tokenizer, "<|eot|>"), encoder(tokenizer)("G")[0]
    for listed, ends in ((eot, {eos, eot}), ([eos, eot, word, 10**6], {eos, eot}), (word, {eos}), (None, {eos})):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}), encoding="utf-8")
        tokenizer = load_tokenizer(folder)
        tokenizer.save_pretrained(str(tmp_path / "saved"))
        assert {*reply_ends(tokenizer)} == {*reply_ends(load_tokenizer(tmp_path / "saved"))} == ends
        shutil.rmtree(tmp_path / "saved")


def test_a_stored_truncation_or_padding_does_not_touch_prompts(tmp_path):
    train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300)
    stored = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "Guten Morgen " * 40
    whole = stored.encode(text, add_special_tokens=False).ids
    stored.enable_truncation(8)
    stored.enable_padding(length=200)
    stored.save(str(tmp_path / "tokenizer.json"))
    encode = encoder(load_tokenizer(str(tmp_path)))
    assert encode(text) == whole
    assert encode("Guten") == encode("Guten Morgen")[: len(encode("Guten"))]


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 10**10 }}",
        "{{ '%9999999999d' | format(1) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ messages }}{% endfor %}",
    ],
    ids=["constant", "format", "loops", "output"],
)
def test_a_template_that_takes_all_memory_or_time_is_one_sentence(tmp_path, template):
    folder = train_bpe(["user\nTranslate Guten Morgen"], tmp_path, 300)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(UserError, match=r"chat template in .* takes more than 5 s or 512 MiB for one word: correct it"):
        load_tokenizer(folder)
