"""A trained policy as transformers, vLLM and their like load it: names, layouts and config.json of Hugging Face.

PaddleNLP stores linear weights as [in, out] under names of its own, and its `save_to_hf` has no effect in 3.0.0b4. The
files are read and written tensor by tensor: a model needs no more memory than its largest matrix.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.data.atomic import write_json
from grrm.errors import UserError
from grrm.models.checkpoint import check_architecture, rotary_overrides
from grrm.models.hub import TOKENIZER_FILES
from grrm.models.shards import (
    PICKLED,
    WIDTHS,
    TensorToWrite,
    check_new,
    new_folder,
    read_pickled,
    write_weights,
)
from grrm.models.trained_with import RECORD_FILE
from grrm.models.weight_files import is_from_torch, weight_files

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_act",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "rope_theta",
    "tie_word_embeddings",
)
_KEYS_OF = {
    "qwen2": ("attention_dropout", "use_sliding_window", "sliding_window", "max_window_layers"),
    "llama": (),
    "qwen3": (),
    "qwen2_moe": (
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "norm_topk_prob",
    ),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file; its numbers are words of `dtype`'s size, which can be moved but not read."""

    name: str
    dtype: str
    words: NDArray[Any]


def export_policy(run: Path, out: Path, card: str = "") -> list[str]:
    """Write the policy in `run`, an output folder or checkpoint, to the new folder `out`; return the files' names.

    config.json, model.safetensors (in parts of SHARD_BYTES with an index where it is larger) with the names and shapes
    of transformers, in the type they are stored in, generation_config.json, the tokenizer's files and, where one is
    given, the model card as README.md. `out` appears complete or not at all.

    Raises UserError for a folder without a policy or tokenizer, one with weights that transformers does not have,
    pickled weights with more than arrays, and an `out` that exists.
    """
    check_new(out)
    raw = check_architecture(run)
    files = _weight_files(run)
    tokenizer_files = [run / name for name in TOKENIZER_FILES if (run / name).is_file()]
    if not tokenizer_files:
        raise UserError(f"'{run}' has no tokenizer files: export the output folder of a run, or copy them into it")
    from grrm.models.policy import policy_class
    from grrm.models.tokenizer import CONFIG_FILE, load_tokenizer, reply_ends

    rotary = rotary_overrides(run / "config.json", raw)
    config = policy_class(raw["model_type"]).config_class.from_pretrained(str(run), **rotary)
    with new_folder(out) as folder:
        dtype = _write_weights(files, folder, has_tied_head=bool(config.tie_word_embeddings))
        for file in (*tokenizer_files, *run.glob(RECORD_FILE)):
            shutil.copyfile(file, folder / file.name)
        _write_tokenizer_settings(folder / CONFIG_FILE)
        tokenizer = load_tokenizer(run)
        names = ("bos_token_id", "eos_token_id", "pad_token_id")
        tokens = {name: getattr(tokenizer, name) for name in names if getattr(tokenizer, name, None) is not None}
        write_json(folder / "config.json", transformers_config(config, raw, dtype) | tokens, indent=2)
        if card:
            (folder / "README.md").write_text(card, encoding="utf-8")
        sampling = tokens | {"eos_token_id": reply_ends(tokenizer), "do_sample": True}
        write_json(folder / "generation_config.json", sampling, indent=2)
    return sorted(file.name for file in out.iterdir())


def _write_tokenizer_settings(file: Path) -> None:
    """Name transformers' class of a tokenizer.json, not PaddleNLP's, and leave out paths of this machine."""
    if not file.is_file():
        return
    settings = json.loads(file.read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "PretrainedTokenizerFast":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in ("name_or_path", "special_tokens_map_file"):
        settings.pop(name, None)
    write_json(file, settings, indent=2)


def transformers_config(config: Any, raw: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """config.json of transformers from PaddleNLP's configuration and its file, every default spelled out.

    The defaults of the two libraries differ.
    """
    model_type = raw["model_type"]
    settings = {name: getattr(config, name) for name in (*_KEYS, *_KEYS_OF[model_type]) if hasattr(config, name)}
    settings.setdefault("hidden_act", "silu")
    if getattr(config, "head_dim", None):
        settings["head_dim"] = config.head_dim
    if isinstance(getattr(config, "rope_scaling", None), dict):
        settings["rope_scaling"] = config.rope_scaling
    elif getattr(config, "rope_scaling_type", None) == "linear":
        settings["rope_scaling"] = {"type": "linear", "rope_type": "linear", "factor": config.rope_scaling_factor}
    architecture = f"{model_type.title().replace('_', '')}ForCausalLM"
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": dtype,
        "use_cache": True,
        **settings,
    }


def transformers_name(name: str, has_tied_head: bool) -> str | None:
    """Return the name in transformers of PaddleNLP's parameter `name`; None for a tied output layer, which is not
    stored.

    Raises UserError for a parameter that no policy of transformers has.
    """
    if name == "lm_head.weight":
        return None if has_tied_head else name
    head, _, rest = name.partition(".")
    if head not in ("qwen2", "llama", "model") or "qkv_proj" in rest or "gate_up_fused_proj" in rest:
        raise UserError(f"the checkpoint holds {name}, for which transformers has no place: export a policy, unfused")
    return f"model.{rest}"


def read_tensors(file: Path) -> Iterator[StoredTensor]:
    """The tensors of a safetensors file, mapped and not read, or of a pickled one.

    Raises UserError for a type that no policy has, and as `read_pickled` does.
    """
    if file.name == PICKLED:
        for name, dtype, array in read_pickled(file):
            yield StoredTensor(name, dtype, array.view(f"<u{WIDTHS[dtype]}"))
        return
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    for name, entry in header.items():
        dtype = "BF16" if entry["dtype"] == "U16" else entry["dtype"]  # as Paddle, through NumPy, stores bfloat16
        if dtype not in _DTYPES:
            raise UserError(f"{name} in '{file}' is stored as {dtype}: export float32, bfloat16 or float16")
        start, _ = entry["data_offsets"]
        kind, shape = np.dtype(f"<u{WIDTHS[dtype]}"), tuple(entry["shape"])
        yield StoredTensor(name, dtype, np.memmap(file, kind, "r", 8 + length + start, shape=shape))


def _weight_files(run: Path) -> list[Path]:
    """The safetensors files or, without any, the pickled one."""
    pickled = run / PICKLED
    return [pickled] if pickled.is_file() and not any(run.glob("*.safetensors")) else weight_files(run)


def _write_weights(files: list[Path], folder: Path, has_tied_head: bool) -> str:
    """Returns the type of the weights."""
    tensors = []
    for file in files:
        is_converted = file.name != PICKLED and is_from_torch(file)
        for tensor in read_tensors(file):
            name = transformers_name(tensor.name, has_tied_head)
            if name is None:
                continue
            is_linear = tensor.words.ndim == 2 and not name.endswith("embed_tokens.weight")
            words = tensor.words.T if is_linear and not is_converted else tensor.words
            tensors.append(TensorToWrite(name, tensor.dtype, words.shape, partial(np.asarray, words)))
    write_weights(folder, tensors)
    return _DTYPES[tensors[0].dtype]
