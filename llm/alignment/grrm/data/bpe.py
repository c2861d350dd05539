"""A small byte-level BPE tokenizer for the tiny models, in the layout `AutoTokenizer.from_pretrained` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from grrm.data.atomic import write_json
from grrm.data.convert import render_prompt
from grrm.data.converters.sqm import question_and_criteria
from grrm.data.parquet import read_rows
from grrm.errors import UserError, require_known
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt
from grrm.gqm.rubric import rubric_seams

PAD, START, EOS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (PAD, START, EOS)
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A word with the space before it; each digit by itself, which makes numbers easy to copy; runs of marks; spaces.
_PIECES = r" ?\p{L}[\p{L}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_bpe(texts: Iterable[str], out_dir: Path, vocab_size: int = 2048, frames: Sequence[str] = ()) -> Path:
    """Train on `texts` and write tokenizer.json, tokenizer_config.json and special_tokens_map.json into `out_dir`.

    The vocabulary holds every byte, so any text can be encoded and comes back unchanged; encoding adds no special
    tokens. It is smaller than `vocab_size` when the texts have too few pieces to merge.

    The chat template is bare ChatML; eos is <|im_end|>, padding is <|endoftext|>. Each of `frames` becomes one token
    wherever it stands, special like those: what all prompts have in common (`prompt_frames`) is a third of a short
    prompt's tokens otherwise.

    Raises UserError for no text or a size under 259 and the frames.
    """
    smallest = SMALLEST_VOCABULARY + len(frames)
    if vocab_size < smallest:
        raise UserError(f"vocab_size {vocab_size} is too small; it must be at least {smallest} (bytes, marks)")
    iterator = iter(texts)
    first = next(iterator, None)
    if first is None:
        raise UserError(f"there is no text to train the tokenizer {out_dir} on; give a corpus with at least one row")
    tokenizer = _untrained()
    tokenizer.train_from_iterator(chain((first,), iterator), _trainer(vocab_size - len(frames)))
    # Special, so that decoding drops the control tokens in them with the others.
    tokenizer.add_special_tokens([AddedToken(frame, normalized=False, special=True) for frame in frames])
    write_json(out_dir / "tokenizer.json", json.loads(tokenizer.to_str()))
    write_json(out_dir / "special_tokens_map.json", {"eos_token": EOS, "pad_token": PAD})
    write_json(out_dir / "tokenizer_config.json", _config(tokenizer, frames))
    return out_dir


def corpus_texts(parquet: Path, prompt_type: str = "Tower") -> Iterator[str]:
    """Yield the prompt and response of a policy for each row, each under its ChatML role.

    Raises UserError as `read_rows` does, and for an unknown language or prompt type.
    """
    require_known("prompt type", prompt_type, MT_PROMPT_TYPES)
    for number, row in enumerate(read_rows(parquet), start=1):
        try:
            prompt = mt_prompt(row.src_text, row.src_lang, row.trg_lang, prompt_type)
        except UserError as error:
            message = f"{parquet} row {number}: {error}; `grrm data convert --to rows` leaves such rows out"
            raise UserError(message) from error
        yield "user\n" + prompt
        yield "assistant\n" + row.trg_text


def prompt_frames(prompt_type: str = "Tower") -> list[str]:
    """The beginning and end of every chat-templated prompt of this type, without spaces at the seams."""
    tasks = [TranslationTask("1", "en", "de"), TranslationTask("Hallo", "de", "zh"), TranslationTask("?", "ko", "en")]
    prompts = [render_prompt(task, prompt_type) for task in tasks]
    begin = _shared_begin(prompts)
    end = _shared_begin([prompt[len(begin) :][::-1] for prompt in prompts])[::-1]
    return [frame for frame in (begin.rstrip(), end.lstrip()) if frame]


def rubric_texts(parquet: Path, criteria: str) -> Iterator[str]:
    """Yield prompt and reply of a rubric judge of translations for each row, all graded 7. Errors as in `read_rows`."""
    for row in read_rows(parquet):
        task = TranslationTask(row.src_text, row.src_lang, row.trg_lang, row.trg_text)
        yield "\n".join(("user", *question_and_criteria(task, criteria), "assistant", "Total Score: 7/10"))


def rubric_frames() -> list[str]:
    """The common parts of all chat-templated prompts of a rubric judge, as `prompt_frames`."""
    begin, before_criteria, before_answer, end = rubric_seams()
    head, tail = render_chatml("\0").split("\0")
    return [head + begin, before_criteria, before_answer, end + tail]


def _shared_begin(texts: Sequence[str]) -> str:
    shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in shared)


def _untrained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trainer(vocab_size: int) -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )


def _config(tokenizer: Tokenizer, frames: Sequence[str]) -> dict[str, Any]:
    return {
        "tokenizer_class": "PretrainedTokenizerFast",
        "added_tokens_decoder": _added(tokenizer, (*SPECIAL_TOKENS, *frames)),
        "eos_token": EOS,
        "pad_token": PAD,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }


def _added(tokenizer: Tokenizer, tokens: Sequence[str]) -> dict[str, Any]:
    mark = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {str(tokenizer.token_to_id(token)): {"content": token, **mark} for token in tokens}
