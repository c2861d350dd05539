"""Text becomes tokens whole, whatever a checkpoint's tokenizer was last used for."""

from __future__ import annotations

from tokenizers import Tokenizer

from grrm.data.bpe import train_bpe
from grrm.training.model_setup import encoder, load_tokenizer


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
