"""Small reward models over backbones of both architectures, and groups for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.rl_processes import MODEL

from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.policy import load_policy, policy_class
from grrm.models.reward_models import CandidateGroup, RewardModel, score_groups, with_new_head

HEADS = {
    "pairwise": {"kind": "pairwise"},
    "none": {"kind": "ranker"},
    "group": {"kind": "ranker", "compare": "group", "blocks": 1, "width": 16},
}


@pytest.fixture(scope="module", name="backbone", params=["qwen2-tied", "llama-untied"])
def backbone_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    use_cpu_layers()
    paddle.seed(5)
    name, tied = request.param.split("-")
    cls = policy_class(name)
    sizes = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    sizes["tie_word_embeddings"] = tied == "tied"
    folder = tmp_path_factory.mktemp(request.param)
    cls(cls.config_class(**sizes, vocab_size=64)).save_pretrained(str(folder), safe_serialization=True)
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
