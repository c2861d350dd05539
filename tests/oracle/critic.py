"""PPO's critic: values of states, their targets' loss, and its AdamW, from a run's checkpoints of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import make_vjp
from autograd.tracer import getval
from oracle import adamw
from oracle.advantages import Rollout, gae, padded
from oracle.comparison import Comparison
from oracle.qwen2 import Rows, Weights, hidden_states
from oracle.run_files import Run, State, zeros_of

OWN_KEYS = ("learning_rate", "weight_decay", "lr_scheduler_type", "warmup_ratio", "min_learning_rate")


@dataclass
class CriticOracle:
    """A critic that starts as the policy's backbone under a head of zeros. `state` is that of the current update."""

    run: Run
    arguments: dict[str, Any]
    comparison: Comparison

    def __post_init__(self) -> None:
        own = {name: self.arguments[f"critic_{name}"] for name in OWN_KEYS}
        changed = {name: value for name, value in own.items() if value is not None or name == "min_learning_rate"}
        self.arguments = {**self.arguments, "warmup_steps": 0, **changed}
        self.start(0)

    def start(self, step: int) -> None:
        """Go to the critic that the run had after `step` optimizer steps."""
        self.state = self.begin = self._saved(step)

    def _saved(self, step: int) -> State:
        if step:
            (folder,) = self.run.folder.glob(f"checkpoint-{step}/critic/checkpoint-*")
            return self.run.saved(folder, step)
        weights = {f"backbone.{name}": value for name, value in self.run.state(0).weights.items()}
        weights |= {"head.weight": np.zeros((self.run.config["hidden_size"], 1)), "head.bias": np.zeros(1)}
        return State(weights, zeros_of(weights), zeros_of(weights), 0)

    def values(self, weights: Weights, rows: Rows) -> Any:
        """The value of the state before every response token [R, T]."""
        backbone = {name.removeprefix("backbone."): value for name, value in weights.items() if "backbone." in name}
        hidden_BTH = hidden_states(backbone, self.run.config, rows.ids_BT)
        hidden_RTH = hidden_BTH[np.arange(len(rows.at_RT))[:, None], rows.at_RT]
        return (hidden_RTH @ weights["head.weight"])[..., 0] + weights["head.bias"]

    def rows(self, rows: Rows, written: list[list[float]]) -> list[np.ndarray]:
        """The values of the rollout by response, compared with the dump's."""
        values_RT = self.values(self.state.weights, rows)
        values = [row[:n] for row, n in zip(values_RT, rows.mask_RT.sum(axis=1), strict=True)]
        for ours, theirs in zip(values, written, strict=True):
            self.comparison.add("values", ours, theirs, 0.1)
        return values

    def aim(self, step: int, rollout: Rollout, mask_RT: Any) -> None:
        """Targets for the updates of a rollout: its values and the advantages beside them, before normalisation."""
        self.mask_RT, self.old_RT = mask_RT, padded(rollout.values, mask_RT.shape)
        self.returns_RT = np.where(mask_RT, self.old_RT + padded(gae(rollout), mask_RT.shape), 0.0)
        targets, errors = self.returns_RT[mask_RT], (self.returns_RT - self.old_RT)[mask_RT]
        fit = {"explained_variance": 1 - errors.var() / targets.var(), "value_target_mean": targets.mean()}
        for name, value in fit.items():
            self.comparison.add(name, value, self.run.metrics[step][name], 0.1)

    def update(self, step: int, rows: Rows, part: slice) -> float:
        """One optimizer step on 0.5 max((V - R)^2, (V within a range of the rollout's - R)^2) per token.

        Returns the share of tokens whose value was clipped.
        """
        old_RT, returns_RT, mask_RT = self.old_RT[part], self.returns_RT[part], self.mask_RT[part]
        bound, n = self.arguments["clip_range_value"], mask_RT.sum()
        metrics: dict[str, float] = {}

        def loss(weights: Weights) -> Any:
            values_RT = self.values(weights, rows)
            free = (values_RT - returns_RT) ** 2
            held = (old_RT + anp.clip(values_RT - old_RT, -bound, bound) - returns_RT) ** 2
            metrics["value_mean"] = float(getval(values_RT)[mask_RT].sum() / n)
            metrics["value_clipfrac"] = float((getval(held) > getval(free))[mask_RT].sum() / n)
            return anp.sum(anp.where(mask_RT, anp.maximum(free, held), 0.0)) / 2 / n

        backward, metrics["value_loss"] = make_vjp(loss)(self.state.weights)
        logged = self.run.metrics[step]
        for name, value in metrics.items():
            self.comparison.add(name, value, logged[name], 1e-3)
        rate = adamw.learning_rate(self.arguments, step)
        self.comparison.add("learning rate", rate, logged["critic_learning_rate"])
        gradient, rate = backward(1.0), adamw.learning_rate(self.arguments, step - 1)
        self.state = adamw.step(self.state, gradient, rate, self.arguments)
        return metrics["value_clipfrac"]

    def finish(self, step: int) -> None:
        """Compare the critic with the run's after `step`."""
        self.comparison.add_changes(
            self.begin, self.state, self._saved(step), self.arguments["adam_beta1"], "critic's "
        )
