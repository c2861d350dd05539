"""Opening the checkpoint in a folder: Paddle's or Hugging Face's safetensors, for generation or for training.

What can be checked without the weights is checked without Paddle, which takes seconds to import.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from grrm.errors import UserError
from grrm.models.hub import REWARD_MODEL_FILES, unfinished
from grrm.models.weight_files import damaged, is_from_torch, stored_names, weight_files

ARCHITECTURES = ("qwen2", "llama", "qwen3", "qwen2_moe")  # values of model_type that can be trained, ranked and served
TIED_HEAD = "lm_head.weight"  # stored once, as the embeddings, where tie_word_embeddings is set
_BASE_PREFIXES = ("model", "qwen2", "llama")  # of parameter names: transformers', PaddleNLP's
# A fused projection holds these, and PaddleNLP converts in both directions.
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_fused_proj": ("gate_proj", "up_proj")}
_CANNOT_LOAD = (OSError, ValueError, RuntimeError, KeyError, TypeError, AssertionError, SafetensorError)


def check_checkpoint(directory: Path) -> dict[str, Any]:
    """The config of the model in `directory`, once everything that can be checked without loading it is in order.

    Raises UserError, one sentence, when the folder or its config.json is missing, `model_type` is none of
    ARCHITECTURES, or a file of weights is missing or cut short.
    """
    config = check_architecture(directory)
    weight_files(directory)
    return config


def check_policy(directory: Path) -> dict[str, Any]:
    """As `check_checkpoint`, of a model that is to write text. Raises UserError for a reward model too."""
    config = check_checkpoint(directory)
    if any((directory / name).is_file() for name in REWARD_MODEL_FILES):
        raise UserError(
            f"'{directory}' holds a reward model, which writes no text: give the folder of a policy, or rank with "
            "it by --judge ranker or --judge rm"
        )
    return config


def check_architecture(directory: Path) -> dict[str, Any]:
    """The config of the model in `directory`. Raises UserError where that is missing or not of ARCHITECTURES."""
    config = read_config(directory)
    model_type = config.get("model_type")
    if model_type not in ARCHITECTURES:
        raise UserError(
            f"the model in '{directory}' is of architecture {model_type!r}, which cannot be opened here: "
            f"give a checkpoint of {' or '.join(ARCHITECTURES)}"
        )
    check_settings(config, f"the model in '{directory}'", f"'{directory}/config.json'")
    return config


def check_settings(config: Mapping[str, Any], model: str, file: str) -> None:
    """Raise UserError for what no model has, and for what PaddleNLP's models would leave out.

    `model` and the `file` of its `config` are named in the sentence.
    """
    _check_numbers(config, file)
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    is_llama, head_dim = config["model_type"] == "llama", config.get("head_dim")
    has_own_width = head_dim and head_dim * config.get("num_attention_heads", 0) != config.get("hidden_size")
    is_lost = {
        "attention_bias": is_llama and config.get("attention_bias"),
        "mlp_bias": is_llama and config.get("mlp_bias"),
        "use_sliding_window": window and window < config.get("max_position_embeddings", math.inf),
        "hidden_act": config.get("hidden_act") not in (None, "silu"),
        "head_dim": has_own_width and config["model_type"] != "qwen3",
        "quantization_config": (config.get("quantization_config") or {}).get("quant_method"),
    }
    if lost := [name for name, is_so in is_lost.items() if is_so]:
        raise UserError(f"{model} has {' and '.join(lost)}, which would be left out here: give another model")


# The highest value of each size of a network, far above those of any model: a network is built before weights are read.
_SIZES = {
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 2**10,
    "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12,
    "head_dim": 2**12,
    "num_experts": 2**12,
    "num_experts_per_tok": 2**12,
    "moe_intermediate_size": 2**20,
    "shared_expert_intermediate_size": 2**20,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**30,
}


def _check_numbers(config: Mapping[str, Any], file: str) -> None:
    """Raise UserError for a size that no network has, and for a constant that is no finite number above zero."""
    bounds: dict[str, float] = {**_SIZES, "rope_theta": math.inf, "rms_norm_eps": math.inf}
    for key in bounds.keys() & config.keys():
        value = config[key]
        if value is None and key in ("num_key_value_heads", "head_dim"):  # as many as heads; hidden_size / heads
            continue
        is_number = isinstance(value, int if key in _SIZES else (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value <= bounds[key] or value == math.inf:
            raise UserError(
                f"{file} has {key} {str(value)[:40]}, which no model has: correct it, or get the checkpoint's own "
                "config.json again"
            )


def load_causal_lm(directory: str | Path, dtype: str = "float32", **overrides: Any) -> Any:
    """The causal language model in `directory` for generation, in eval mode. Raises UserError as `load_model` does."""
    from grrm.models.policy import POLICY_BASES

    model = load_model(POLICY_BASES.__getitem__, directory, dtype=dtype, **overrides)
    model.eval()
    return model


def load_model(class_of: Callable[[str], Any], directory: str | Path, **overrides: Any) -> Any:
    """The class of a `model_type` with the checkpoint in `directory`, every parameter from there; torch's is converted.

    `overrides` are those of `from_pretrained`: `dtype`, and settings that replace those in config.json. Raises
    UserError, one sentence, as `check_checkpoint`, for weights that lack a parameter or do not fit config.json, and for
    rotary embeddings of a kind that PaddleNLP would leave out.
    """
    directory = Path(directory)
    config = check_architecture(directory)
    overrides = rotary_overrides(directory / "config.json", config) | overrides
    files = weight_files(directory)
    model_class = class_of(config["model_type"])
    model_class._keys_to_ignore_on_load_missing = [TIED_HEAD]  # no warning: what is missing is looked for below
    converted: dict[str, Any] = {}
    try:
        if is_from_torch(files[0]):
            state = _converted(model_class, directory, files, overrides)
            converted = {"convert_from_torch": True, "state_dict": state}
        model = model_class.from_pretrained(str(directory), **overrides, **converted)
    except _CANNOT_LOAD as error:
        raise damaged(directory, error, "are damaged or do not fit its config.json") from error
    # PaddleNLP fills what is missing with random numbers and a warning.
    missing = missing_parameters(model.state_dict(), stored_names(files), model.config.tie_word_embeddings)
    if missing:
        more = " and more" if len(missing) > 3 else ""
        raise UserError(
            f"the weights in '{directory}' lack {', '.join(missing[:3])}{more}: they are not whole, get them again"
        )
    share_rotary_tables(model)
    return model


def _converted(model_class: Any, directory: Path, files: Iterable[Path], overrides: Mapping[str, Any]) -> Any:
    """The parameters of a checkpoint from torch as PaddleNLP names and lays them out, or this tensor rank's part.

    PaddleNLP's own conversion does not divide them among ranks, and leaves a pickled copy in the folder.
    """
    from grrm.paddlenlp_api.files import load_torch

    config = model_class.config_class.from_pretrained(str(directory), **overrides)
    state: dict[str, Any] = {}
    for file in files:
        state.update(load_torch(str(file)))
    for mapping in model_class._get_name_mappings(config):
        if mapping.source_name in state:
            state[mapping.target_name] = mapping.run(state, mapping.source_name)
    if config.tensor_parallel_degree > 1:
        state = model_class.convert_tensor_parallel("", config, state_dict=state)
    return state


def share_rotary_tables(*models: Any) -> None:
    """Let all layers of models of one config read the first one's table of rotary positions.

    PaddleNLP gives each a table of its own, float32 and as long as max_position_embeddings: of Qwen2.5-7B 3.5 GiB.
    """
    first, *others = (layer for model in models for layer in getattr(model, model.base_model_prefix).layers)
    for layer in others:
        layer.self_attn.rotary_emb = first.self_attn.rotary_emb


def stored_dtype(config: Mapping[str, Any]) -> str:
    """The type of weights that a config.json names: bfloat16 for half precision of either kind, else float32."""
    named = config.get("dtype") or config.get("torch_dtype")
    return "bfloat16" if named in ("bfloat16", "float16") else "float32"


def read_config(directory: Path) -> dict[str, Any]:
    """The checkpoint's config.json. Raises UserError when there is none, or it is not a JSON object."""
    if not directory.is_dir():
        state = "is not a folder" if directory.exists() else "does not exist"
        raise UserError(f"the checkpoint folder '{directory}' {state}: give the folder of a model")
    file = f"'{directory}/config.json'"
    if not (directory / "config.json").is_file():
        remedy = unfinished(directory) or "pass a checkpoint directory"
        raise UserError(f"model directory '{directory}' has no config.json: {remedy}")
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not readable JSON ({error}): pass a checkpoint directory") from None
    if not isinstance(config, dict):
        raise UserError(f"{file} is not a JSON object: pass a checkpoint directory")
    return config


def rotary_overrides(file: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that make PaddleNLP read the rotary embeddings of `file`, a `config` of transformers.

    Version 5 writes `rope_parameters`, which PaddleNLP does not read: it would run the model with its own default of
    `rope_theta`. Of `rope_scaling` it reads Llama 3's and ignores the rest. Raises UserError for a scaling that would
    be left out, or that lacks a number.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type")) or "default"
    overrides = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope and "rope_theta" not in config else {}
    is_llama = config.get("model_type") == "llama"
    if kind == "default" and not any(isinstance(value, dict) for value in rope.values()):
        return overrides
    if kind == "linear" and is_llama:
        _check_scaling(file, rope, ("factor",))
        return overrides | {"rope_scaling_type": "linear", "rope_scaling_factor": rope["factor"]}
    if kind == "llama3" and is_llama:
        _check_scaling(file, rope, _LLAMA3)
        return overrides | {"rope_scaling": rope}
    raise UserError(
        f"'{file}' scales rotary embeddings ({kind}) in a way that PaddleNLP would leave out for this "
        "architecture: use a checkpoint without rope_scaling and rope_parameters other than rope_theta"
    )


_LLAMA3 = ("rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _check_scaling(file: str | Path, scaling: Mapping[str, Any], names: Iterable[str]) -> None:
    if absent := [name for name in names if name not in scaling]:
        raise UserError(f"'{file}' scales rotary embeddings without {', '.join(absent)}: add it as the model's has it")


def missing_parameters(needed: Iterable[str], stored: Iterable[str], has_tied_head: bool) -> list[str]:
    """Parameters of a model that its files do not hold, sorted, named without the base model's prefix."""
    missing = _plain_names(needed) - _plain_names(stored)
    return sorted(missing - {TIED_HEAD} if has_tied_head else missing)


def _plain_names(names: Iterable[str]) -> set[str]:
    """Names as both libraries have in common: no base prefix, fused projections taken apart."""
    plain: set[str] = set()
    for name in names:
        head, _, rest = name.partition(".")
        short = rest if head in _BASE_PREFIXES else name
        fused = next((part for part in _FUSED if f".{part}." in short), None)
        plain |= {short.replace(fused, part) for part in _FUSED[fused]} if fused else {short}
    return plain
