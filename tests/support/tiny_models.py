"""Tiny models with random weights, biases and norms, and the slow but obvious way to get their logits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from safetensors.numpy import save_file

from grrm.models.qwen2_moe import Qwen2MoeConfig, Qwen2MoeForCausalLM
from grrm.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

VOCAB = 97
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}
ARCHITECTURES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen2_moe": (partial(Qwen2MoeConfig, **EXPERTS), Qwen2MoeForCausalLM),
}


def build_model(architecture: str = "qwen2", **settings: Any) -> Any:
    config_cls, model_cls = ARCHITECTURES[architecture]
    config = config_cls(
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        vocab_size=VOCAB,
        max_position_embeddings=64,
        rope_theta=500.0,
    )
    for name, value in settings.items():  # some settings get lost on the way through the constructor
        setattr(config, name, value)
    paddle.seed(7)
    model = model_cls(config)
    rng = np.random.default_rng(7)
    for parameter in model.parameters():  # biases and norms too, which start as constants
        centre = 1.0 if parameter.ndim == 1 and "norm" in parameter.name else 0.0
        noise = rng.normal(centre, 0.25, parameter.shape).astype("float32")
        parameter.set_value(paddle.to_tensor(noise))
    model.eval()
    return model


def naive_logits(model: Any, token_ids: Sequence[int]) -> np.ndarray:
    """(T, V) logits of one unpadded sequence by PaddleNLP's own forward pass."""
    with paddle.no_grad():
        output = model(paddle.to_tensor([list(token_ids)]))
    return (output[0] if isinstance(output, tuple) else output).numpy().reshape(len(token_ids), -1)


def save_as_hugging_face(model: Any, directory: Path) -> None:
    """Rename the prefix, store linear weights (out, in), leave the tied head out: what transformers writes."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        array = tensor.numpy()
        is_linear = array.ndim == 2 and "embed_tokens" not in name
        tensors[name.replace("qwen2.", "model.", 1)] = np.ascontiguousarray(array.T if is_linear else array)
    directory.mkdir(exist_ok=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = {**model.config.to_dict(), "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    (directory / "config.json").write_text(json.dumps(config))
