"""A Qwen2 policy as the GGUF file that llama.cpp loads, in float32."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from safetensors.numpy import load_file

_SPECIAL, _NORMAL = 3, 1  # types of tokens
_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "_proj": "",
}


def write_policy_gguf(exported: Path, file: Path) -> None:
    """Write the policy in the folder `exported`, in Hugging Face's format with a byte-level BPE, to `file`."""
    config = json.loads((exported / "config.json").read_text())
    tokenizer = json.loads((exported / "tokenizer.json").read_text())
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    by_id = {number: token for token, number in tokenizer["model"]["vocab"].items()} | special
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([by_id[number] for number in range(config["vocab_size"])])
    writer.add_token_types([_SPECIAL if number in special else _NORMAL for number in range(config["vocab_size"])])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    for name, weights in load_file(exported / "model.safetensors").items():
        for theirs, own in _NAMES.items():
            name = name.replace(theirs, own)
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
