"""Tiny models with random weights, biases and norms, the slow but obvious way to their logits, and reward models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from safetensors.numpy import save_file
from support.tiny_policy import random_policy

from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.policy import load_policy
from grrm.models.qwen2_moe import Qwen2MoeConfig, Qwen2MoeForCausalLM
from grrm.models.qwen3 import Qwen3Config, Qwen3ForCausalLM
from grrm.models.reward_models import score_groups, with_new_head
from grrm.models.value_head import CandidateGroup, RewardModel

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
HEADS = {
    "pairwise": {"kind": "pairwise"},
    "none": {"kind": "ranker"},
    "group": {"kind": "ranker", "compare": "group", "blocks": 1, "width": 16},
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


@pytest.fixture(scope="module", name="backbone", params=["qwen2-tied", "llama-untied"])
def backbone_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    use_cpu_layers()
    name, tied = request.param.split("-")
    folder = tmp_path_factory.mktemp(request.param)
    policy = random_policy(name, vocab_size=64, tie_word_embeddings=tied == "tied")
    policy.save_pretrained(str(folder), safe_serialization=True)
    return folder


@pytest.fixture(scope="module", name="model", params=HEADS)
def reward_model(request: pytest.FixtureRequest, backbone: Path) -> RewardModel:
    model = with_new_head(backbone=load_policy(backbone), seed=3, **HEADS[request.param])
    for name, weight in model.head.named_parameters():  # else nothing would come of candidates seeing each other
        if "own_bias" in name:
            weight.set_value(paddle.linspace(-1.0, 1.0, weight.shape[0]))
    return model


def draw_groups(*sizes: int, seed: int = 0) -> list[CandidateGroup]:
    rng = np.random.default_rng(seed)
    return [
        CandidateGroup(
            rng.integers(1, 64, rng.integers(1, 9)).tolist(),
            [rng.integers(1, 64, rng.integers(1, 7)).tolist() for _ in range(size)],
        )
        for size in sizes
    ]


def scores(model: RewardModel, groups: list[CandidateGroup]) -> list[list[float]]:
    return score_groups(model, groups, max_tokens=10_000)


def flat(groups: list[list[float]]) -> np.ndarray:
    return np.concatenate(groups)
