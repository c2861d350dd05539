"""The heads of reward models in NumPy float64: a ranker's blocks over candidates' tokens, the pairwise value head."""

from __future__ import annotations

from typing import Any

import autograd.numpy as np
from autograd.tracer import getval
from oracle.qwen2 import Weights, head_of, hidden_states, log_softmax, norm, rotated, rows_of

Group = tuple[list[int], list[list[int]]]  # prompt and responses, token ids


def scores_of(weights: Weights, config: dict[str, Any], groups: list[Group], arguments: dict[str, Any]) -> list[Any]:
    """The score of every candidate, group by group."""
    prompts = [prompt for prompt, responses in groups for _ in responses]
    responses = [response for _, responses in groups for response in responses]
    backbone = {name.removeprefix("backbone."): value for name, value in weights.items() if "backbone." in name}
    hidden_BTH = hidden_states(backbone, config, rows_of(prompts, responses).ids_BT)
    begins = [len(prompt) for prompt in prompts]
    ends = [begin + len(response) for begin, response in zip(begins, responses, strict=True)]
    if arguments["reward_model"] == "pairwise":
        last_RH = np.stack([hidden_BTH[row, end - 1] for row, end in enumerate(ends)])
        return list(np.reshape(last_RH @ weights["head.weight"], -1))
    features = [
        _features(backbone, config, hidden_BTH[row, begin - 1 : end], response) @ weights["head.features.weight"]
        + weights["head.features.bias"]
        for row, (begin, end, response) in enumerate(zip(begins, ends, responses, strict=True))
    ]
    sizes = [len(members) for _, members in groups] if arguments["compare"] == "group" else [1] * len(responses)
    scores: list[Any] = []
    for size in sizes:
        scores += _scored(features[len(scores) : len(scores) + size], weights, config, arguments["blocks"])
    return scores


def _features(backbone: Weights, config: dict[str, Any], hidden_TH: Any, response: list[int]) -> Any:
    """Of a candidate's tokens: hidden state, that before times embedding, embedding, log-prob, gap to the largest."""
    before_TH, own_TH = hidden_TH[:-1], hidden_TH[1:]
    embedded_TH = backbone["qwen2.embed_tokens.weight"][np.array(response)]
    logits_TV = before_TH @ head_of(backbone, config)
    index = np.arange(len(response)), np.array(response)
    logprobs_T = log_softmax(logits_TV)[index]
    gaps_T = getval(np.max(logits_TV, axis=-1) - logits_TV[index])
    scores_T2 = np.stack([logprobs_T, gaps_T], axis=-1) * 0.3
    return np.concatenate([own_TH, before_TH * embedded_TH * 3.0, embedded_TH * 5.0, scores_T2], axis=-1)


def _scored(candidates: list[Any], weights: Weights, config: dict[str, Any], n_blocks: int) -> list[Any]:
    """The scores of candidates whose tokens see each other."""
    lengths = [len(candidate) for candidate in candidates]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.concatenate([np.arange(n) for n in lengths])
    x_MH = np.concatenate(candidates, axis=0)
    for block in range(n_blocks):
        part = f"head.blocks.{block}."
        normed = norm(x_MH, weights[part + "attention_norm.weight"], config)
        x_MH = x_MH + _mixed(normed, weights, part, positions, owner, config) @ weights[part + "out.weight"]
        normed = norm(x_MH, weights[part + "mlp_norm.weight"], config)
        gate = normed @ weights[part + "mlp.gate_proj.weight"]
        inner = gate / (1 + np.exp(-gate)) * (normed @ weights[part + "mlp.up_proj.weight"])
        x_MH = x_MH + inner @ weights[part + "mlp.down_proj.weight"]
    x_MH = norm(x_MH, weights["head.norm.weight"], config)
    means = [np.mean(x_MH[owner == candidate], axis=0) for candidate in range(len(lengths))]
    return [(mean @ weights["head.score.weight"])[0] for mean in means]


def _mixed(x_MH: Any, weights: Weights, part: str, positions: Any, owner: Any, config: dict[str, Any]) -> Any:
    size = config["hidden_size"] // config["num_attention_heads"]
    n_heads = x_MH.shape[1] // size

    def heads(name: str) -> Any:
        projected = x_MH @ weights[f"{part}{name}.weight"] + weights[f"{part}{name}.bias"]
        return np.transpose(np.reshape(projected, (len(positions), n_heads, size)), (1, 0, 2))

    query, key = (rotated(heads(name), positions, 10000.0) for name in ("query", "key"))
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(size)
    if part + "own_bias" in weights:
        scores = scores + weights[part + "own_bias"][:, None, None] * (owner[:, None] == owner[None])
    shares = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    mixed = shares / np.sum(shares, axis=-1, keepdims=True) @ heads("value")
    return np.reshape(np.transpose(mixed, (1, 0, 2)), x_MH.shape)
