import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from grrm.data.bpe import (
    EOS,
    PAD,
    SPECIAL_TOKENS,
    START,
    corpus_texts,
    prompt_frames,
    rubric_frames,
    rubric_texts,
    train_bpe,
)
from grrm.data.convert import render_prompt
from grrm.data.corpora.phrases import build_phrases
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES
from grrm.gqm.rubric import rubric_prompt

PROBES = [
    "",
    "  two  spaces \n\n and\ttabs ",
    "1.234,50 € – 15 % 2021年5月3日",
    "Größe, naïve, мягкий, 한국어, 漢字, 🙂, \u200b\ufeff\x00",
    "<|im_start|>user\nHallo<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|endoftext|>",
]
PAIRS = [("Hi there", "en", "fr"), ("Guten Tag: 1", "de", "zh"), ("안녕", "ko", "en")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bpe")
    files = build_phrases(root, train_rows=1_500, heldout_rows=10, seed=1)
    return train_bpe(corpus_texts(files.train), root / "tokenizer", 700, prompt_frames())


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@given(text=st.text())
@example(text=PROBES[1])
@example(text=PROBES[3])
def test_any_text_comes_back_unchanged(tokenizer: Tokenizer, text: str) -> None:
    if not any(token in text for token in SPECIAL_TOKENS):
        assert tokenizer.decode(_ids(tokenizer, text)) == text


def test_control_tokens_are_single_ids_and_skipped_on_decoding(tokenizer: Tokenizer) -> None:
    for token in SPECIAL_TOKENS:
        assert _ids(tokenizer, token) == [tokenizer.token_to_id(token)]
    assert len({tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}) == 3
    assert tokenizer.decode(_ids(tokenizer, f"{START}user\nHi{EOS}\n{PAD}")) == "user\nHi\n"


def test_no_special_tokens_are_added(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Hi").ids == _ids(tokenizer, "Hi")


@given(st.integers(0, 10**12).map(str))
def test_every_digit_is_a_token_of_its_own(tokenizer: Tokenizer, digits: str) -> None:
    assert [tokenizer.decode([i]) for i in _ids(tokenizer, digits)] == list(digits)


def test_the_roles_and_the_prompt_take_few_tokens(tokenizer: Tokenizer) -> None:
    prompt = render_prompt(TranslationTask("X", "en", "de"), "Tower")
    pieces = [tokenizer.id_to_token(i) for i in _ids(tokenizer, prompt)]
    assert pieces[0] == "<|im_start|>user\nTranslate the following text from"
    assert pieces[-1] == ":<|im_end|>\n<|im_start|>assistant\n"
    assert len(pieces) < 15
    assert tokenizer.decode(_ids(tokenizer, prompt), skip_special_tokens=False) == prompt
    assert tokenizer.get_vocab_size() == 700


@pytest.mark.parametrize("prompt_type", MT_PROMPT_TYPES)
def test_frames_are_what_prompts_of_a_type_share(prompt_type: str) -> None:
    prompts = [render_prompt(TranslationTask(text, *pair), prompt_type) for text, *pair in PAIRS]
    for frame in prompt_frames(prompt_type):
        assert len(frame) > 3
        assert all(prompt.count(frame) == 1 for prompt in prompts)


def test_the_prompts_of_a_rubric_judge_take_few_tokens_too(tmp_path: Path) -> None:
    parquet, criteria = build_phrases(tmp_path, 40, 10, ["en", "de"], seed=1).train, "10 points for: {reference}"
    texts, frames = rubric_texts(parquet, criteria), [*prompt_frames(), *rubric_frames()]
    tokenizer = Tokenizer.from_file(str(train_bpe(texts, tmp_path / "tokenizer", 500, frames) / "tokenizer.json"))
    prompt = render_chatml(rubric_prompt("Q", "C", "A"))
    assert [tokenizer.id_to_token(i) for i in _ids(tokenizer, prompt)][1::2] == ["Q", "C", "A"]
    assert tokenizer.decode(_ids(tokenizer, prompt), skip_special_tokens=False) == prompt
    assert tokenizer.decode(_ids(tokenizer, "Total Score: 7/10")) == "Total Score: 7/10"


def test_training_is_reproducible(tmp_path: Path) -> None:
    texts = ["ein Text", "noch ein Text", "12 Texte"] * 20
    for name in ("a", "b"):
        train_bpe(iter(texts), tmp_path / name, vocab_size=300)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()


def test_no_text_and_too_small_a_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no text"):
        train_bpe([], tmp_path / "t")
    with pytest.raises(UserError, match="vocab_size 258 is too small; it must be at least 259"):
        train_bpe(["a"], tmp_path / "t", vocab_size=258)
    assert not (tmp_path / "t").exists()


def test_the_config_names_the_class_that_paddlenlps_autotokenizer_has(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PretrainedTokenizerFast"
    assert (config["eos_token"], config["pad_token"]) == (EOS, PAD)


def test_paddlenlps_autotokenizer_gives_the_same_ids(folder: Path, tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("paddlenlp.transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(str(folder))
    for probe in PROBES:
        ids = loaded(probe, add_special_tokens=False)["input_ids"]
        assert ids == _ids(tokenizer, probe)
        assert loaded.decode(ids) == probe
        assert loaded.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)
    for token in SPECIAL_TOKENS:
        assert loaded(token)["input_ids"] == [loaded.convert_tokens_to_ids(token)]
    assert (loaded.eos_token, loaded.pad_token) == (EOS, PAD)
    assert (loaded.eos_token_id, loaded.pad_token_id) == (tokenizer.token_to_id(EOS), tokenizer.token_to_id(PAD))
    for user in ("Hi", "Translate the following text:\n  ok "):
        chat = [{"role": "user", "content": user}]
        rendered = loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert rendered == f"{START}user\n{user}{EOS}\n{START}assistant\n"


def test_a_language_without_a_name_is_told_with_its_row(tmp_path):
    (tmp_path / "rows.csv").write_text("src_text,trg_text,src_lang,trg_lang\na,b,en,de\na,b,en,germn\n")
    with pytest.raises(UserError, match=r"rows\.csv row 2: unknown language 'germn'.* --to rows` leaves such rows out"):
        list(corpus_texts(tmp_path / "rows.csv"))
