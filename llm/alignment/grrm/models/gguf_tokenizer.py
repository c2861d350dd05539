"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json: its own vocabulary, merges and template."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grrm.errors import UserError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # tokenizer.ggml.token_type
_BLANK = "\u2581"  # SentencePiece's sign for a blank
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# How a text is cut before merges, by tokenizer.ggml.pre: digits one by one and GPT-2's rule, or one pattern.
_PATTERNS = {
    "qwen2": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_OTHERS}",
    "llama-bpe": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_OTHERS}",
}
_SAME_PATTERN = {"deepseek-r1-qwen": "qwen2", "llama3": "llama-bpe"}
_GPT2 = {"smollm": True, "gpt-2": False, "default": False}  # whether digits are cut one by one


def tokenizer_files(value: Callable[..., Any], vocab_size: int, path: Path) -> dict[str, dict[str, Any]]:
    """Name -> content of the tokenizer's files, from what `value` gives of a GGUF file's metadata.

    Raises UserError for a tokenizer other than byte-level BPE or SentencePiece's BPE, a rule of cutting texts that is
    not known, and more tokens than the model has rows.
    """
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    if len(tokens) > vocab_size:
        raise UserError(f"'{path}' has {len(tokens)} tokens but {vocab_size} rows of embeddings: get the file again")
    kind, cut = value("tokenizer.ggml.model"), value("tokenizer.ggml.pre", "default")
    if kind == "gpt2":
        tokenizer = _byte_level_bpe(tokens, types, value("tokenizer.ggml.merges"), cut, path)
    elif kind == "llama":
        scores, has_prefix = value("tokenizer.ggml.scores"), value("tokenizer.ggml.add_space_prefix", True)
        tokenizer = _sentence_piece_bpe(tokens, types, scores, has_prefix)
    else:
        raise UserError(f"'{path}' has a tokenizer of kind {kind!r}: give a model with BPE (gpt2 or llama)")
    special = [(token, kind) for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    _add(tokenizer, special)
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = value(f"tokenizer.ggml.{key}_token_id", -1)
        if number >= 0:
            named[f"{name}_token"] = tokens[number]
    # As llama.cpp does where the file does not say; those of Llama 3 do not.
    has_bos = kind == "llama" or _SAME_PATTERN.get(cut, cut) == "llama-bpe"
    if value("tokenizer.ggml.add_bos_token", has_bos) and "bos_token" in named:
        _begin_with(tokenizer, named["bos_token"])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # the name that transformers 4 and 5 both have
        "model_max_length": value("{arch}.context_length"),
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": [
            token for token, kind in special if kind == _CONTROL and token not in named.values()
        ],
        **named,
    }
    template = value("tokenizer.chat_template", "")
    if template:
        config["chat_template"] = template
    return {"tokenizer.json": json.loads(tokenizer.to_str()), "tokenizer_config.json": config}


def _add(tokenizer: Any, special: Sequence[tuple[str, int]]) -> None:
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(token, normalized=False, special=kind == _CONTROL) for token, kind in special])


def _byte_level_bpe(tokens: Sequence[str], types: Sequence[int], merges: Sequence[str], cut: str, path: Path) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pattern = _SAME_PATTERN.get(cut, cut)
    if pattern in _PATTERNS:
        split = pre_tokenizers.Split(Regex(_PATTERNS[pattern]), "isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif cut in _GPT2:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if _GPT2[cut] else []
        steps = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        supported = ", ".join(sorted({*_PATTERNS, *_SAME_PATTERN, *_GPT2}))
        raise UserError(f"the tokenizer in '{path}' cuts texts by the rule {cut!r}, which is not one of {supported}")
    vocabulary = {token: number for number, token in enumerate(tokens) if types[number] != _UNUSED}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=pattern == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if pattern == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _sentence_piece_bpe(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float], has_prefix: bool) -> Any:
    """SentencePiece's BPE joins the neighbours whose union has the best score: merges in the order of scores."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {token: number for number, token in enumerate(tokens) if types[number] != _UNUSED}
    merges = []
    for number, token in enumerate(tokens):
        if types[number] != _NORMAL:
            continue
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        merges += [(-scores[number], number, pair) for pair in cuts if set(pair) <= vocabulary.keys()]
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == _UNKNOWN), None)
    pairs = [pair for _, _, pair in sorted(merges)]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    blanks = normalizers.Replace(" ", _BLANK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_BLANK), blanks] if has_prefix else [blanks])
    steps = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if has_prefix else steps)
    return tokenizer


def _begin_with(tokenizer: Any, token: str) -> None:
    from tokenizers import processors

    begin = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, tokenizer.token_to_id(token))]
    )
    tokenizer.post_processor = begin
