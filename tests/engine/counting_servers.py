"""Rollout servers whose tokens and log-probabilities tell prompt and weights, and the engine that asks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import save_file
from support.fastdeploy_weights import Shapes
from support.local_server import FAST
from support.rollout_server import RolloutServer

from grrm.engine.api import SamplingParams
from grrm.engine.openai_wire import completions_client
from grrm.engine.rollout_wire import ROLLOUT_APIS
from grrm.engine.server_engine import ServerEngine
from grrm.models.fastdeploy_snapshot import write_snapshot

VOCAB, EOS, STOP = 50, 49, 48
PARAMS = SamplingParams(max_new_tokens=4, stop_token_ids=(STOP, EOS), seed=7)


PARAMETERS: Shapes = {"qwen2.norm.weight": [1], "lm_head.linear.weight": [1, 2]}  # of FastDeploy's model


class Counting:
    """Draws prompt[0] + 1, prompt[0] + 2, …, each with a log-probability that tells its place and the weights."""

    def __init__(self) -> None:
        self.weights = 0.0
        self.seeds: list[int] = []

    def load(self, folder: Path) -> None:
        self.weights = float(folder.name.removeprefix("step-"))

    def take(self, folder: Path, weights: dict[str, Any]) -> None:
        (self.weights,) = map(float, weights["qwen2.norm.weight"])

    def draw(self, prompt: list[int], n: int, temperature: float, seed: int) -> tuple[list[int], list[float]]:
        self.seeds.append(seed)
        tokens = [min(prompt[0] + 1 + place, STOP) for place in range(n)]
        return tokens, [-0.25 * (place + 1) - self.weights for place in range(n)]


def counting_server(folder: Path, api: str, **settings: Any) -> RolloutServer:
    return RolloutServer(api, Counting(), folder, EOS, expected=PARAMETERS, **settings)


class Trainer:
    """Publishes the weights of each step: a folder of its own, or in FastDeploy's."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder, self.api = folder, api
        self.published: list[int] = []

    def publish(self, version: int) -> Path:
        self.published.append(version)
        if self.api == "fastdeploy":
            weights = {name: paddle.full(shape, version, "bfloat16") for name, shape in PARAMETERS.items()}
            write_snapshot(self.folder, weights, version)
            return self.folder
        place = self.folder / f"step-{version}"
        place.mkdir(exist_ok=True)
        save_file({"model.norm.weight": np.zeros(1, np.float32)}, place / "model.safetensors")
        return place


def engine(
    tmp_path: Path, *servers: RolloutServer, token: str | None = None, deadline_s: float = 120.0, **settings: Any
) -> tuple[ServerEngine, Trainer]:
    api = servers[0].api
    trainer = Trainer(tmp_path, api)
    made = ServerEngine(
        completions_client([server.url for server in servers], token=token, **FAST | {"deadline_s": deadline_s}),
        ROLLOUT_APIS[api],
        vocab_size=VOCAB,
        max_positions=64,
        publish=trainer.publish,
        together=lambda work: work(),
        **settings,
    )
    return made, trainer


apis = pytest.mark.parametrize("api", ["fastdeploy", "vllm"])
