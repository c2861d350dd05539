"""GGUF files of a few kilobytes, written by `gguf`'s own writer as llama.cpp's converter lays models out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from oracle.qwen2 import head_of, hidden_states

HIDDEN, HEADS, KV_HEADS, INNER, VOCAB, LAYERS = 64, 4, 2, 96, 300, 2
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "a n"]
WEIGHTS = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "attn_v": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
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
    writer = gguf.GGUFWriter(path, architecture)
    _add_metadata(writer, pre)
    for key, value in (extra or {}).items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add[type(value)](key, value)
    expected = {}
    for name, (own, numbers, n_heads) in _tensors(architecture, tie).items():
        rows = _paired(numbers, n_heads) if n_heads and architecture == "llama" else numbers
        type_ = gguf.GGMLQuantizationType.F32 if numbers.ndim == 1 else quantization
        stored = gguf.quants.quantize(rows, type_)
        writer.add_tensor(name, stored, raw_dtype=type_)
        rounded = gguf.quants.dequantize(stored, type_).astype(np.float32)
        expected[own] = _halves(rounded, n_heads) if n_heads and architecture == "llama" else rounded
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def _add_metadata(writer: gguf.GGUFWriter, pre: str) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = [*SPECIAL, *_byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)


def _byte_letters() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _tensors(architecture: str, tie: bool) -> dict[str, tuple[str, np.ndarray, int]]:
    """GGUF's name -> transformers' name, numbers in transformers' layout, heads of a projection that is rotated."""
    draw = np.random.default_rng(3)
    plain = {"token_embd.weight": ("model.embed_tokens.weight", (VOCAB, HIDDEN))}
    plain["output_norm.weight"] = ("model.norm.weight", (HIDDEN,))
    if not tie:
        plain["output.weight"] = ("lm_head.weight", (VOCAB, HIDDEN))
    names = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(LAYERS):
        stem, own = f"blk.{layer}", f"model.layers.{layer}"
        plain[f"{stem}.attn_norm.weight"] = (f"{own}.input_layernorm.weight", (HIDDEN,))
        plain[f"{stem}.ffn_norm.weight"] = (f"{own}.post_attention_layernorm.weight", (HIDDEN,))
        for name, shape in WEIGHTS.items():
            plain[f"{stem}.{name}.weight"] = (f"{own}.{names[name]}.weight", shape)
            if architecture == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                plain[f"{stem}.{name}.bias"] = (f"{own}.{names[name]}.bias", shape[:1])
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}
    return {
        name: (own, draw.normal(0.0, 0.3, shape).astype(np.float32), heads.get(name.split(".")[-2], 0))
        for name, (own, shape) in plain.items()
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
    config = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    config |= {"rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "tie_word_embeddings": "lm_head.weight" not in tensors}
    weights = {f"qwen2.layers.{layer}.self_attn.{n}_proj.bias": np.zeros(1) for layer in range(LAYERS) for n in "qkv"}
    for name, values in tensors.items():
        is_linear = values.ndim == 2 and "embed_tokens" not in name
        weights[name.replace("model.", "qwen2.")] = (values.T if is_linear else values).astype(np.float64)
    return (hidden_states(weights, config, np.array([ids])) @ head_of(weights, config))[0]
