"""GGUF files, tiny or of a policy, written by `gguf`'s own writer as llama.cpp's converter lays models out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from oracle.qwen2 import head_of, hidden_states
from safetensors.numpy import load_file

HIDDEN, HEADS, KV_HEADS, INNER, VOCAB, LAYERS = 64, 4, 2, 96, 300, 2
CONFIG = {
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": 128,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "a n"]
NAMES = {  # transformers' -> GGUF's
    "model.embed_tokens.": "token_embd.",
    "model.norm.": "output_norm.",
    "lm_head.": "output.",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "_proj": "",
}
WEIGHTS = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "self_attn.v_proj": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}


def write_tiny_gguf(
    path: Path,
    architecture: str = "llama",
    kind: str = "Q8_0",
    *,
    tie: bool = True,
    pre: str = "smollm",
    extra: dict[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Write the file; returns each tensor under transformers' name and in its layout, as `kind` rounds it.

    `extra` are further metadata: numbers and texts by their key.
    """
    quantization = gguf.GGMLQuantizationType[kind]
    tokens = [*SPECIAL, *_byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    expected = {}
    with _written(path, architecture, CONFIG, tokens, set(SPECIAL), MERGES, pre) as writer:
        writer.add_chat_template(TEMPLATE)
        for key, value in (extra or {}).items():
            add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
            add[type(value)](key, value)
        for name, (numbers, n_heads) in _tensors(architecture, tie).items():
            rows = _paired(numbers, n_heads) if n_heads and architecture == "llama" else numbers
            type_ = gguf.GGMLQuantizationType.F32 if numbers.ndim == 1 else quantization
            stored = gguf.quants.quantize(rows, type_)
            writer.add_tensor(_gguf_name(name), stored, raw_dtype=type_)
            rounded = gguf.quants.dequantize(stored, type_).astype(np.float32)
            expected[name] = _halves(rounded, n_heads) if n_heads and architecture == "llama" else rounded
    return expected


def write_policy_gguf(exported: Path, path: Path) -> None:
    """Write the Qwen2 policy in the folder `exported`, in Hugging Face's format with a byte-level BPE, in float32."""
    config = json.loads((exported / "config.json").read_text())
    tokenizer = json.loads((exported / "tokenizer.json").read_text())
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    by_id = {number: token for token, number in tokenizer["model"]["vocab"].items()} | special
    tokens = [by_id[number] for number in range(config["vocab_size"])]
    merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    with _written(path, "qwen2", config, tokens, set(special.values()), merges, "smollm") as writer:
        writer.add_add_bos_token(False)
        for name, weights in load_file(exported / "model.safetensors").items():
            writer.add_tensor(_gguf_name(name), weights)


@contextmanager
def _written(
    path: Path,
    architecture: str,
    config: dict[str, Any],
    tokens: list[str],
    special: set[str],
    merges: list[str],
    pre: str,
) -> Iterator[gguf.GGUFWriter]:
    """The writer of a file with the metadata of a config of transformers and of a BPE; it is written at the end."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])  # control and normal ones
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    yield writer
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    for theirs, own in NAMES.items():
        name = name.replace(theirs, own)
    return name


def _byte_letters() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _tensors(architecture: str, tie: bool) -> dict[str, tuple[np.ndarray, int]]:
    """transformers' name -> numbers in its layout, heads of a projection that is rotated."""
    draw = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tie:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        shapes[f"{layer}.input_layernorm.weight"] = shapes[f"{layer}.post_attention_layernorm.weight"] = (HIDDEN,)
        for name, shape in WEIGHTS.items():
            shapes[f"{layer}.{name}.weight"] = shape
            if architecture == "qwen2" and name.endswith(("q_proj", "k_proj", "v_proj")):
                shapes[f"{layer}.{name}.bias"] = shape[:1]
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}
    return {
        name: (draw.normal(0.0, 0.3, shape).astype(np.float32), heads.get(name.split(".")[-2], 0))
        for name, shape in shapes.items()
    }


def _paired(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """As llama.cpp wants a rotated projection: rows i and i + half of each head side by side."""
    size = weight.shape[0] // n_heads
    order = [head * size + i + half for head in range(n_heads) for i in range(size // 2) for half in (0, size // 2)]
    return weight[order]


def _halves(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """What `_paired` did undone, row by row."""
    size = weight.shape[0] // n_heads
    order = [head * size + row for head in range(n_heads) for row in [*range(0, size, 2), *range(1, size, 2)]]
    return weight[order]


def forward(tensors: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Logits [T, V] of the model by its formulas, in NumPy."""
    config = {**CONFIG, "tie_word_embeddings": "lm_head.weight" not in tensors}
    weights = {f"qwen2.layers.{layer}.self_attn.{n}_proj.bias": np.zeros(1) for layer in range(LAYERS) for n in "qkv"}
    for name, values in tensors.items():
        is_linear = values.ndim == 2 and "embed_tokens" not in name
        weights[name.replace("model.", "qwen2.")] = (values.T if is_linear else values).astype(np.float64)
    return (hidden_states(weights, config, np.array([ids])) @ head_of(weights, config))[0]
