"""The clock of training throughput."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grrm.training import records
from grrm.training.records import MetersTokens


class Layer:
    """A model whose layer has counted 600 tokens in 800 places."""

    token_use = SimpleNamespace(take=lambda: (600, 800))

    def sublayers(self, include_self: bool) -> list[Any]:
        return [self]


class Loop:
    """Stands for PaddleNLP's Trainer: a step takes a second, an evaluation nine."""

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.model = clock, Layer()
        self.args = SimpleNamespace(dataset_rank=0, dataset_world_size=1, world_size=1)
        self.args.tensor_parallel_degree = self.args.pipeline_parallel_degree = 1

    def training_step(self, model: Any, inputs: Any, step_control: int) -> None:
        self.clock[0] += 1.0

    def _maybe_log_save_evaluate(self) -> None:
        self.clock[0] += 9.0


class Trainer(MetersTokens, Loop):
    """As the stages are put together."""


def test_evaluations_between_log_lines_do_not_count_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(records.time, "perf_counter", lambda: clock[0])
    trainer = Trainer(clock)
    for _ in range(3):
        trainer.training_step(None, None)
        trainer._maybe_log_save_evaluate()
    assert trainer.throughput() == {"train_tokens_a_second": 200.0, "frac_padding": 0.25}
