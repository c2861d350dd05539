"""Models named as on a hub, `Owner/Model`: where PaddleNLP looks for them, then Hugging Face; downloaded once.

PaddleNLP downloads from Baidu's object storage (BOS), or from ModelScope with the environment variable
`from_modelscope=True`, and keeps files in `~/.paddlenlp/models`. What is not there is looked for on Hugging Face, whose
cache is that of `hf download`. Pickled weights are never downloaded.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import requests

from grrm.config.values import is_hub_name
from grrm.errors import UserError
from grrm.startup import configure_process

# What a folder has beside the backbone of a reward model.
REWARD_MODEL_FILES = ("reward_model.json", "value_head.safetensors", "ranker_head.safetensors")
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
)
INDEX_FILE = "model.safetensors.index.json"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_FILES = (*TOKENIZER_FILES, "generation_config.json", "grrm.json", *REWARD_MODEL_FILES)
_SHARD = re.compile(r"[\w.-]+\.safetensors")  # a file of the folder itself, wherever the index comes from


def checkpoint_folder(name: str | Path) -> Path:
    """The folder of a model: `name` itself, or for `Owner/Model` that of its files, downloaded where they are missing.

    Files that are there already are not asked for again. Raises UserError, one sentence, for a model that no hub has,
    has in pickled form only, or whose download fails.
    """
    name = str(name)
    if not is_hub_name(name):
        return Path(name)
    if "paddle" not in sys.modules:  # which PaddleNLP imports to look for the model
        configure_process()
    folder = _paddlenlp_home() / name
    if _is_complete(folder):
        return folder
    reasons = []
    for hub, fetch in (("PaddleNLP's hub", from_paddlenlp), ("Hugging Face", from_hugging_face)):
        try:
            folder = fetch(name)
        except (OSError, ValueError, requests.RequestException) as error:
            first_sentence = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
            reasons.append(f"{hub}: {first_sentence.rstrip('.')}")
            continue
        if _is_complete(folder):
            return folder
        reasons.append(f"{hub} has no safetensors of it")
    raise UserError(
        f"'{name}' is no folder here, and cannot be had from a hub ({'; '.join(reasons)}): mend the name, or download "
        "the model where there is a network and give its folder"
    )


def unfinished(directory: Path) -> str | None:
    """A hint for the folder of an unfinished training run, which has no model yet; None for any other folder."""
    if not (directory / "trainer.log").is_file():
        return None
    saved = saved_checkpoints(directory)
    checkpoint = f", or name {saved[max(saved)]}" if saved else ""
    return f"its training has not ended; run that command again{checkpoint}"


def saved_checkpoints(run: str | Path) -> dict[int, Path]:
    """The folders `checkpoint-N` of a training run, whole or not, by their step N."""
    matches = ((re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in Path(run).glob("checkpoint-*"))
    return {int(match[1]): path for match, path in matches if match}


def _paddlenlp_home() -> Path:
    from grrm.paddlenlp_api.files import MODEL_HOME

    return Path(MODEL_HOME)


def from_paddlenlp(name: str) -> Path:
    """The folder with a model's files from PaddleNLP's hub; weights come last, so their presence means completeness."""
    config = _fetch(name, _CONFIG)
    if config is None:
        return _paddlenlp_home() / name
    for file in _FILES:
        _fetch(name, file)
    index = _fetch(name, INDEX_FILE)
    for file in [_WEIGHTS] if index is None else indexed_files(index):
        _fetch(name, file)
    return config.parent


def _fetch(name: str, file: str) -> Path | None:
    """The file in PaddleNLP's cache, downloaded if need be; None where the hub does not have it."""
    from grrm.paddlenlp_api.files import resolve_file_path

    path = resolve_file_path(name, [file], cache_dir=str(_paddlenlp_home()))
    return None if path is None else Path(path)


def from_hugging_face(name: str) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[_CONFIG, *_FILES, INDEX_FILE, "model*.safetensors"]))


def _is_complete(folder: Path) -> bool:
    """True when config and all weights exist; other files are downloaded before the weights."""
    if not (folder / _CONFIG).is_file():
        return False
    files = indexed_files(folder / INDEX_FILE) if (folder / INDEX_FILE).is_file() else [_WEIGHTS]
    return all((folder / file).is_file() for file in files)


def indexed_files(index: Path) -> list[str]:
    """The files of weights that an index names. Raises ValueError for one that is no index, or names other places."""
    try:
        files = sorted({str(file) for file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of weights") from error
    if not all(_SHARD.fullmatch(file) for file in files):
        raise ValueError(f"{index} names files outside of its folder")
    return files
