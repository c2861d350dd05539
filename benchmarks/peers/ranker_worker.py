"""Training steps of the ranker in PyTorch: `ranker_worker.py FOLDER`, what `benchmarks/ranker_step.py` compares with.

FOLDER has "model", a ranker as this project stores it, and "task.json": "groups" (prompt, responses, gold), how many of
them are a "batch", "learning_rate", "backbone_learning_rate" and "squared_weight". Takes the first step, says
"@@ready", then answers each line of JSON on stdin, {"steps"}, by "@@" and their wall and CPU seconds, and the losses of
all steps since its last answer.

In the backbone a group is one row, prompt and candidates, padded to the longest of its batch; each candidate sees the
prompt and itself. Only candidates' tokens meet the output layer and the new blocks, where a candidate is a row or a
group is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

HIDDEN = -1e9
Weights = dict[str, nn.Parameter]


def load(path: Path) -> Weights:
    """Weights by name, matrices of layers as `F.linear` wants them; the output layer is the embeddings."""
    stored = {name: value for name, value in load_file(path).items() if not name.startswith("lm_head")}
    is_layer = {name: value.ndim == 2 and "embed_tokens" not in name for name, value in stored.items()}
    return {name: nn.Parameter((array.T if is_layer[name] else array).contiguous()) for name, array in stored.items()}


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, epsilon)


def rotary(positions: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, 1, T, D]."""
    frequencies = base ** -(torch.arange(0, width, 2) / width)
    angles = positions[:, None, :, None] * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = tables
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Ranker:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.settings = json.loads((folder / "reward_model.json").read_text(encoding="utf-8"))
        self.backbone, self.head = load(folder / "model.safetensors"), load(folder / "ranker_head.safetensors")
        self.n_heads, self.width = self.config["num_attention_heads"], self.config["hidden_size"]
        self.epsilon, self.base = self.config["rms_norm_eps"], self.config["rope_theta"]

    def layer(self, x: Tensor, part: Weights, names: dict[str, str], mask: Tensor, tables: Any) -> Tensor:
        """A transformer layer over [B, T, H] with an additive mask."""

        def linear(x: Tensor, name: str) -> Tensor:
            name = names[name]
            return F.linear(x, part[f"{name}.weight"], part.get(f"{name}.bias"))

        head_width = self.width // self.n_heads
        y = norm(x, part[f"{names['attention_norm']}.weight"], self.epsilon)
        q, k, v = (
            linear(y, name).unflatten(-1, (-1, head_width)).transpose(1, 2) for name in ("query", "key", "value")
        )
        q, k = rotate(q, tables), rotate(k, tables)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=k.shape[1] != q.shape[1])
        x = x + linear(mixed.transpose(1, 2).flatten(2), "out")
        y = norm(x, part[f"{names['mlp_norm']}.weight"], self.epsilon)
        return x + linear(F.silu(linear(y, "gate")) * linear(y, "up"), "down")

    def scores(self, batch: dict[str, Tensor]) -> Tensor:
        """Scores [R]."""
        embeddings = self.backbone["qwen2.embed_tokens.weight"]
        x, head_width = F.embedding(batch["ids"], embeddings), self.width // self.n_heads
        tables = rotary(batch["positions"], head_width, self.base)
        for number in range(self.config["num_hidden_layers"]):
            x = self.layer(x, self.backbone, lower_names(number), batch["mask"], tables)
        x = norm(x, self.backbone["qwen2.norm.weight"], self.epsilon).flatten(0, 1)
        own, before, labels = x[batch["own"]], x[batch["before"]], batch["labels"]
        logits, embedded = F.linear(before, embeddings), F.embedding(labels, embeddings)
        logprobs = -F.cross_entropy(logits, labels, reduction="none")
        with torch.no_grad():
            gaps = logits.amax(-1) - logits.gather(1, labels[:, None]).squeeze(1)
        scores = torch.stack([logprobs, gaps], -1) * 0.3
        features = torch.cat([own, before * embedded * 3, embedded * 5, scores], -1)
        y = F.linear(features, self.head["features.weight"], self.head["features.bias"])
        y = F.pad(y, (0, 0, 0, 1))[batch["tokens"]]
        tables = rotary(batch["new_positions"], head_width, 10_000.0)
        for number in range(self.settings["blocks"]):
            mask = batch["new_mask"]
            if self.settings["compare"] == "group":
                mask = mask + batch["same"] * self.head[f"blocks.{number}.own_bias"][:, None, None]
            y = self.layer(y, self.head, upper_names(number), mask, tables)
        means = batch["weights"] @ norm(y, self.head["norm.weight"], self.epsilon)
        return F.linear(means.flatten(0, 1), self.head["score.weight"], self.head["score.bias"]).squeeze(-1)


def lower_names(number: int) -> dict[str, str]:
    layer = f"qwen2.layers.{number}."
    names = {"query": "q", "key": "k", "value": "v", "out": "o"}
    return {
        "attention_norm": layer + "input_layernorm",
        "mlp_norm": layer + "post_attention_layernorm",
        **{name: f"{layer}self_attn.{short}_proj" for name, short in names.items()},
        **{name: f"{layer}mlp.{name}_proj" for name in ("gate", "up", "down")},
    }


def upper_names(number: int) -> dict[str, str]:
    layer = f"blocks.{number}."
    names = ("attention_norm", "mlp_norm", "query", "key", "value", "out")
    return {**{name: layer + name for name in names}, **{n: f"{layer}mlp.{n}_proj" for n in ("gate", "up", "down")}}


def collate(groups: list[dict[str, Any]], compare: str) -> dict[str, Tensor]:
    """A batch of groups of one size; candidates' tokens are numbered through them in their order."""
    rows = []
    for group in groups:
        prompt = group["prompt"]
        ids, positions, owners = list(prompt), list(range(len(prompt))), [-1] * len(prompt)
        for number, response in enumerate(group["responses"]):
            ids += response
            positions += range(len(prompt), len(prompt) + len(response))
            owners += [number] * len(response)
        rows.append((torch.tensor(ids), torch.tensor(positions), torch.tensor(owners)))
    ids, positions, owners = (
        nn.utils.rnn.pad_sequence([row[i] for row in rows], True, value) for i, value in enumerate((0, 0, -2))
    )
    width = ids.shape[1]
    own = (owners >= 0).flatten().nonzero().squeeze(1)
    first = positions.flatten()[own] == torch.tensor([len(group["prompt"]) for group in groups])[own // width]
    last_of_prompt = own // width * width + positions.flatten()[own] - 1
    same = owners[:, :, None] == owners[:, None, :]
    visible = torch.ones(width, width, dtype=torch.bool).tril() & (same | (owners == -1)[:, None, :])
    lengths = [len(response) for group in groups for response in group["responses"]]
    size = len(groups[0]["responses"])
    in_rows = lengths if compare == "none" else [sum(lengths[i : i + size]) for i in range(0, len(lengths), size)]

    def row(values: Tensor, fill: int) -> Tensor:
        return nn.utils.rnn.pad_sequence(list(values.split(in_rows)), True, fill)

    number = row(torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)), -1)
    members = torch.arange(len(lengths)).view(len(in_rows), -1)
    weights = (members[:, :, None] == number[:, None, :]).float()
    begins = torch.tensor([0, *accumulate(lengths)][:-1]).repeat_interleave(torch.tensor(lengths))
    return {
        "ids": ids,
        "positions": positions,
        "mask": torch.zeros(visible.shape).masked_fill_(~visible, HIDDEN)[:, None],
        "own": own,
        "before": torch.where(first, last_of_prompt, own - 1),
        "labels": ids.flatten()[own],
        "tokens": row(torch.arange(len(own)), len(own)),
        "new_positions": row(torch.arange(len(own)) - begins, 0),
        "new_mask": torch.zeros(number.shape).masked_fill_(number < 0, HIDDEN)[:, None, None, :],
        "same": (number[:, :, None] == number[:, None, :]).float()[:, None],
        "weights": weights / weights.sum(-1, keepdim=True),
    }


def loss_of(scores: Tensor, groups: list[dict[str, Any]], squared_weight: float) -> Tensor:
    """Bradley-Terry over pairs of different gold, and the squared error of differences from the group's mean."""
    gold = torch.tensor([group["gold"] for group in groups])
    scores = scores.view_as(gold)
    pairs = torch.tensor(list(combinations(range(gold.shape[1]), 2))).T
    ahead = scores[:, pairs[0]] - scores[:, pairs[1]]
    differences = gold[:, pairs[0]] - gold[:, pairs[1]]
    counts = (differences.abs() > 0.05).float()
    loss = (F.softplus(-ahead * differences.sign()) * counts).sum() / counts.sum().clamp(min=1)
    return loss + squared_weight * F.mse_loss(scores - scores.mean(1, True), gold - gold.mean(1, True))


class Training:
    """The optimizer, and the batches one after the other, from the start again behind the last."""

    def __init__(self, folder: Path) -> None:
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        groups, size = task["groups"], task["batch"]
        self.batches = [groups[start : start + size] for start in range(0, len(groups), size)]
        self.model, self.squared_weight, self.n_steps = Ranker(folder / "model"), task["squared_weight"], 0
        self.weights = [*self.model.backbone.values(), *self.model.head.values()]
        rates = ((self.model.backbone, task["backbone_learning_rate"]), (self.model.head, task["learning_rate"]))
        settings = [
            {
                "params": [parameter for parameter in part.values() if (parameter.ndim == 2) == is_matrix],
                "lr": rate,
                "weight_decay": 0.01 * is_matrix,
            }
            for part, rate in rates
            for is_matrix in (True, False)
        ]
        self.optimizer = torch.optim.AdamW(settings, betas=(0.9, 0.95), fused=True)

    def step(self) -> float:
        """The loss of the next batch, before the weights follow its gradient."""
        groups = self.batches[self.n_steps % len(self.batches)]
        loss = loss_of(self.model.scores(collate(groups, self.model.settings["compare"])), groups, self.squared_weight)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        self.n_steps += 1
        return loss.item()


def main(folder: Path) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    training = Training(folder)
    losses = [training.step()]
    print("@@ready", flush=True)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        losses += [training.step() for _ in range(json.loads(line)["steps"])]
        answer = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu, "losses": losses}
        print("@@" + json.dumps(answer), flush=True)
        losses = []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
