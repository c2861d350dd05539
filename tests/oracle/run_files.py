"""What a run leaves behind: its settings, sampled groups, checkpoints and metrics, read without grrm."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class State:
    """Weights and AdamW's moments, float64, by the names of the weights."""

    weights: Arrays
    moment1: Arrays
    moment2: Arrays
    step: int


@dataclass(frozen=True)
class Run:
    """The folder of a finished run, and the argument file and keys it was started with, which win over derived ones."""

    folder: Path
    argument_file: Path
    settings: dict[str, str]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """What was written by the user, and of the rest what the run derived or took as default."""
        derived = [json.loads(path.read_text()) for path in self.folder.glob("rollouts/arguments-step*.json")]
        written = yaml.safe_load(self.argument_file.read_text())
        chosen = {name: yaml.safe_load(text) for name, text in self.settings.items()}
        return {**(derived[0] if derived else {}), **written, **chosen}

    @cached_property
    def metrics(self) -> dict[int, dict[str, float]]:
        """The logged line of every optimizer step."""
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line for line in lines if "loss" in line}

    @cached_property
    def rollouts(self) -> dict[int, list[dict[str, Any]]]:
        """The trained groups of every rollout in their order, by the first optimizer step that they were used in."""
        lines = (self.folder / "rollouts/rollouts-rank000.jsonl").read_text(encoding="utf-8").splitlines()
        steps: dict[int, list[dict[str, Any]]] = {}
        for record in map(json.loads, lines):
            if record["use"] == "trained":
                steps.setdefault(record["step"], []).append(record)
        return steps

    def drawn_before(self, step: int) -> np.ndarray | None:
        """The engine's log-probs of all tokens of the rollout that `step` begins with, if a checkpoint has them."""
        path = self.folder / f"checkpoint-{step - 1}/rollout_ahead.npz"
        return np.load(path)["logprobs"] if path.exists() else None

    @cached_property
    def prompts(self) -> dict[tuple[str, str, str], list[int]]:
        """Token ids of every prompt of the data, by source and languages."""
        prompts = {}
        for line in Path(self.arguments["train_datasets"]).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            task = json.loads(row["tgt"])
            ids = self.tokenizer.encode(row["src"], add_special_tokens=False).ids
            prompts[task["source"], task["src_lang"], task["trg_lang"]] = ids
        return prompts

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return Tokenizer.from_file(str(self.model / "tokenizer.json"))

    @property
    def model(self) -> Path:
        """The folder of the model that the run started from."""
        name = "actor_model_name_or_path"
        return Path(self.arguments[name if name in self.arguments else "model_name_or_path"])

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json of the model."""
        return json.loads((self.model / "config.json").read_text())

    def state(self, step: int) -> State:
        """Weights and moments after `step` optimizer steps; before the first, the model's and zeros."""
        if step == 0:
            weights = _float64(load_file(self.model / "model.safetensors"), self.config)
            return State(weights, zeros_of(weights), zeros_of(weights), 0)
        return self.saved(self.folder / f"checkpoint-{step}", step)

    def saved(self, folder: Path, step: int) -> State:
        """Weights and moments in the folder of a checkpoint."""
        saved = _unpickled(folder / "model_state.pdparams")
        names = saved.pop("StructuredToParameterName@@")
        optimizer = _unpickled(folder / "optimizer.pdopt")
        weights = _float64(saved, self.config)
        moments = [
            {name: optimizer.get(f"{names[name]}_moment{n}_0", np.zeros(1)).astype(np.float64) for name in weights}
            for n in (1, 2)
        ]
        return State(weights, *moments, step)


def _unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def _float64(weights: Arrays, config: dict[str, Any]) -> Arrays:
    """The weights without the output layer where it is the input embeddings."""
    tied = "lm_head.weight" if config["tie_word_embeddings"] else "nothing"
    return {name: value.astype(np.float64) for name, value in weights.items() if not name.endswith(tied)}


def zeros_of(weights: Arrays) -> Arrays:
    """Moments before the first step."""
    return {name: np.zeros_like(value) for name, value in weights.items()}
