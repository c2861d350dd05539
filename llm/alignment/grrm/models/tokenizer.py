"""The tokenizer of a checkpoint folder: text to ids and back, the tokens that stop, the chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from grrm.errors import UserError, first_line
from grrm.gqm.chat import EOS_TEXT
from grrm.models.hub import checkpoint_folder, unfinished
from grrm.models.template_trial import MIB, SECONDS, runs_away

CONFIG_FILE, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
GENERATION_FILE = "generation_config.json"
FILES = (CONFIG_FILE, "tokenizer.json")
WINDOW = 16  # preceding tokens that are decoded again to locate the next one in a text


def load_tokenizer(directory: str | Path) -> Any:
    """The tokenizer in `directory`, which has an eos token; where it names no pad token, that is the eos token.

    `directory` may be a hub's name of a model. Folders that transformers 5 wrote are read as well: a tokenizer.json
    without the files of older classes. Raises UserError when the folder holds no tokenizer that can be read, one that
    names no eos_token, or one whose chat template takes too much, and as `checkpoint_folder`.
    """
    directory = checkpoint_folder(directory)
    if not directory.is_dir():
        raise UserError(
            f"the tokenizer folder '{directory}' does not exist: give the folder of a downloaded checkpoint"
        )
    if not any((directory / file).is_file() for file in ("config.json", *FILES)) and (how := unfinished(directory)):
        raise UserError(f"the folder '{directory}' has no model and no tokenizer: {how}")
    try:
        templates = _stored_templates(directory)
        ends = _settings(directory / GENERATION_FILE).get("eos_token_id")
        tokenizer = None if any(map(runs_away, templates)) else _read(directory)
    except Exception as error:  # the tokenizers library raises plain ones, the compiler of templates its own
        raise UserError(
            f"the folder '{directory}' has no tokenizer that can be read ({first_line(error)}): copy the tokenizer "
            "files of the model into it"
        ) from error
    if tokenizer is None:
        raise UserError(
            f"the chat template in '{directory}' takes more than {SECONDS} s or {MIB} MiB for one word: correct it"
        )
    if tokenizer.eos_token_id is None:
        raise UserError(f"the tokenizer in '{directory}' names no eos_token: set it in its tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    specials = {token_id(tokenizer, text) for text in special_tokens(tokenizer)} - {tokenizer.eos_token_id, None}
    tokenizer.model_ends = specials.intersection(ends if isinstance(ends, list) else [ends])
    _save_with(tokenizer, templates[0] if templates else None)
    return tokenizer


def _stored_templates(directory: Path) -> list[str]:
    """The chat templates in a tokenizer's folder: the file of transformers 5, then the one among its settings."""
    file = directory / TEMPLATE_FILE
    in_file = [file.read_text(encoding="utf-8")] if file.is_file() else []
    template = _template_of(_settings(directory / CONFIG_FILE))
    return in_file if template is None else [*in_file, template]


def _template_of(settings: dict[str, Any]) -> str | None:
    template = settings.get("chat_template")
    if isinstance(template, list):  # of several by name
        template = next((named.get("template") for named in template if named.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def without_line_break(template: str | None) -> str | None:
    """A chat template as transformers renders it: one line break at its end, which PaddleNLP renders, is no part."""
    return template and template.removesuffix("\n")


def _save_with(tokenizer: Any, template: str | None) -> None:
    """Let `save_pretrained` write what it leaves out: the chat template, in both places, and the model's other ends."""
    save = tokenizer.save_pretrained

    def save_all(save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        saved, folder = save(save_directory, *args, **kwargs), Path(save_directory)
        if template is not None:
            _add_setting(folder / CONFIG_FILE, "chat_template", template)
            (folder / TEMPLATE_FILE).write_text(template, encoding="utf-8")
        if tokenizer.model_ends:
            _add_setting(folder / GENERATION_FILE, "eos_token_id", list(reply_ends(tokenizer)))
        return saved

    tokenizer.save_pretrained = save_all


def _add_setting(file: Path, name: str, value: Any) -> None:
    settings = json.dumps(_settings(file) | {name: value}, indent=2, ensure_ascii=False)
    file.write_text(settings + "\n", encoding="utf-8")


def _read(directory: Path) -> Any:
    from grrm.paddlenlp_api.modeling import transformers

    settings = _settings(directory / CONFIG_FILE)
    named = settings.get("tokenizer_class")
    tokenizer_class = getattr(transformers, named, None) if named else None
    reads_json = isinstance(tokenizer_class, type) and issubclass(tokenizer_class, transformers.PretrainedTokenizerFast)
    options: dict[str, Any] = {}
    if "chat_template" in settings:  # PaddleNLP reads no list of them
        options["chat_template"] = without_line_break(_template_of(settings))
    # Never a slow class, as Qwen2Tokenizer: it drops blanks beside special tokens, and so a line break of ChatML.
    if named and not reads_json and (directory / "tokenizer.json").is_file():
        return transformers.PretrainedTokenizerFast.from_pretrained(str(directory), **options)
    return transformers.AutoTokenizer.from_pretrained(str(directory), use_fast=True, **options)


def _settings(config: Path) -> dict[str, Any]:
    if not config.is_file():
        return {}
    settings = json.loads(config.read_text(encoding="utf-8"))
    return settings if isinstance(settings, dict) else {}


def check_vocabulary(tokenizer: Any, vocab_size: int, directory: str | Path = "") -> None:
    """Raises UserError when the model has no row for a token: it would be an index error in the middle of a run."""
    if len(tokenizer) > vocab_size:
        location = f" in '{directory}'" if str(directory) else ""
        raise UserError(
            f"the tokenizer{location} has {len(tokenizer)} tokens but the model only {vocab_size} (vocab_size in its "
            "config.json): use the tokenizer the model was trained with"
        )


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Text to ids without special tokens added: prompts are rendered from the chat template already."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # the wrapper around it takes a third of the time
        # What the wrapper does at each call: a stored file may ask for cutting and padding.
        backend.no_truncation()
        backend.no_padding()
        # A batch, even of one, lets other threads run meanwhile; `fast` leaves out where in the text the tokens are.
        return lambda text: list(backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
    return lambda text: list(tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"])


def token_spans(tokenizer: Any) -> Callable[[str], list[tuple[int, int]]]:
    """Text to the [start, end) characters of each token of `encoder`.

    Tokens that are parts of one character all have it. What it returns raises UserError for a text whose tokens do not
    decode to it, where the tokenizer has no tokenizer.json.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return lambda text: [tuple(span) for span in backend.encode(text, add_special_tokens=False).offsets]
    encode, decode = encoder(tokenizer), response_decoder(tokenizer, skip_special_tokens=False)
    return lambda text: _decoded_spans(text, encode(text), decode)


def sampled_spans(tokenizer: Any) -> Callable[[Sequence[int], str], list[tuple[int, int]]]:
    """Sampled ids and the text of `response_decoder` to the [start, end) characters of each token in it.

    Ids need not be those of `encoder`. Tokens that are parts of one character all have it; special tokens have none.
    """
    decode, spans_of, encode = response_decoder(tokenizer), token_spans(tokenizer), encoder(tokenizer)

    def locate(ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        usual = encode(text)
        n = len(usual)
        if list(ids[:n]) == usual and decode(usual) == text and not decode(ids[n:]):
            return spans_of(text) + [(len(text), len(text))] * (len(ids) - n)
        return _prefix_spans(text, ids, decode)

    return locate


def _prefix_spans(text: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[tuple[int, int]]:
    """The spans of tokens by what the first ones decode to, where a part of a character shows as another one.

    Tokens that are found are left out from then on, unless the others then decode otherwise, as where a decoder drops
    the space before the first word.
    """
    spans: list[tuple[int, int]] = []
    first, offset, start = 0, 0, 0
    for number in range(1, len(ids) + 1):
        prefix = decode(ids[first:number])
        end = offset + _n_common(text[offset : offset + len(prefix)], prefix)
        is_complete = end == offset + len(prefix)
        spans.append((start, end if is_complete else max(end, start + 1)))
        start = max(start, end)  # with a part of a character behind them, some decoders take whole ones apart
        if is_complete and number - first >= WINDOW:
            following = decode(ids[number : number + WINDOW]).rstrip("\ufffd")
            if following and text.startswith(following, end):
                first, offset = number, end
    return spans


def _decoded_spans(text: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[tuple[int, int]]:
    """The spans of tokens by what the first ones decode to, an unfinished character left out."""
    if decode(ids) != text:
        raise UserError("the tokenizer does not say where its tokens are in a text: give a tokenizer.json")
    ends = [_n_common(text, decode(ids[:number])) for number in range(len(ids) + 1)]
    return [(start, max(end, min(start + 1, len(text)))) for start, end in pairwise(ends)]


def _n_common(text: str, other: str) -> int:
    """Return the length of the common prefix in characters."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((number for number, (char, other_char) in pairs if char != other_char), min(len(text), len(other)))


def text_encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Text to ids where nothing in the text is a special token, whatever it looks like: for texts of others.

    Raises UserError for a tokenizer that cannot do that.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError("the tokenizer is a slow one, which takes text for special tokens: give a tokenizer.json")
    plain = type(backend).from_str(backend.to_str())  # its own: others go on reading special tokens
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True
    return lambda text: list(plain.encode(text, add_special_tokens=False).ids)


def response_decoder(tokenizer: Any, *, skip_special_tokens: bool = True) -> Callable[[Sequence[int]], str]:
    """Ids to the response's text as it was generated, special tokens left out unless they are asked for."""
    # PaddleNLP's default takes the space before a sign out, which French has there.
    options = {"skip_special_tokens": skip_special_tokens, "clean_up_tokenization_spaces": False}
    return lambda ids: str(tokenizer.decode(list(ids), **options))


def token_id(tokenizer: Any, text: str) -> int | None:
    """The id of a token given by its text, None where the tokenizer has no such token."""
    number = tokenizer.convert_tokens_to_ids(text)
    return None if number is None or number == tokenizer.unk_token_id else int(number)


def reply_ends(tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's eos, <|im_end|> where it is a token of its own, and the model's other ends.

    Stock Qwen tokenizers name another eos. Llama 3 and others list several ends in generation_config.json.
    """
    ids = {tokenizer.eos_token_id, token_id(tokenizer, EOS_TEXT), *getattr(tokenizer, "model_ends", ())}
    return tuple(sorted(int(token) for token in ids if token is not None))


def stop_tokens(tokenizer: Any, eos_token: str) -> tuple[int, ...]:
    """The ids that end a response: the tokenizer's eos and the argument file's `eos_token`, if any.

    Raises UserError when `eos_token` is not a token.
    """
    ids = {int(tokenizer.eos_token_id)}
    if eos_token:
        extra = token_id(tokenizer, eos_token)
        if extra is None:
            raise UserError(f"eos_token {eos_token!r} is not a token of this tokenizer: correct it or remove the key")
        ids.add(extra)
    return tuple(sorted(ids))


def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """The texts that the tokenizer turns into special tokens; none for a tokenizer that does not say."""
    named = tuple(getattr(tokenizer, "all_special_tokens", ()))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    added = backend.get_added_tokens_decoder().values() if backend is not None else ()
    return tuple(dict.fromkeys((*named, *(token.content for token in added if token.special))))
