"""A Qwen2 causal language model in NumPy float64, differentiable by `autograd`: nothing of Paddle, nothing of grrm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import autograd.numpy as np

Weights = dict[str, Any]


class Rows(NamedTuple):
    """Prompts and responses as one right-padded table; position t of a response is predicted at `at_RT`."""

    ids_BT: Any
    at_RT: Any
    labels_RT: Any
    mask_RT: Any


def rows_of(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Rows:
    """The table of these rows, 0 where there is padding."""
    width = max(len(response) for response in responses)
    length = max(len(one) + len(other) for one, other in zip(prompts, responses, strict=True))
    ids_BT = np.zeros((len(prompts), length), dtype=int)
    at_RT, labels_RT, mask_RT = (np.zeros((len(prompts), width), dtype=int) for _ in range(3))
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        ids_BT[row, : len(prompt) + len(response)] = [*prompt, *response]
        at_RT[row, : len(response)] = len(prompt) - 1 + np.arange(len(response))
        labels_RT[row, : len(response)] = response
        mask_RT[row, : len(response)] = 1
    return Rows(ids_BT, at_RT, labels_RT, mask_RT.astype(bool))


def hidden_states(weights: Weights, config: dict[str, Any], ids_BT: Any) -> Any:
    """Hidden states [B, T, H] behind the last norm."""
    x_BTH = weights["qwen2.embed_tokens.weight"][ids_BT]
    for layer in range(config["num_hidden_layers"]):
        part = f"qwen2.layers.{layer}."
        normed = norm(x_BTH, weights[part + "input_layernorm.weight"], config)
        x_BTH = x_BTH + _attention(normed, weights, part + "self_attn.", config)
        normed = norm(x_BTH, weights[part + "post_attention_layernorm.weight"], config)
        gate = normed @ weights[part + "mlp.gate_proj.weight"]
        inner = gate / (1 + np.exp(-gate)) * (normed @ weights[part + "mlp.up_proj.weight"])
        x_BTH = x_BTH + inner @ weights[part + "mlp.down_proj.weight"]
    return norm(x_BTH, weights["qwen2.norm.weight"], config)


def token_scores(weights: Weights, config: dict[str, Any], rows: Rows, temperature: float = 1.0) -> tuple[Any, Any]:
    """Log-probability of every response token and entropy at it, [R, T] in nats; what padding has means nothing."""
    hidden_BTH = hidden_states(weights, config, rows.ids_BT)
    hidden_RTH = hidden_BTH[np.arange(len(rows.at_RT))[:, None], rows.at_RT]
    all_RTV = log_softmax(hidden_RTH @ head_of(weights, config) / temperature)
    index = np.arange(rows.labels_RT.shape[0])[:, None], np.arange(rows.labels_RT.shape[1])[None], rows.labels_RT
    return all_RTV[index], -np.sum(np.exp(all_RTV) * all_RTV, axis=-1)


def head_of(weights: Weights, config: dict[str, Any]) -> Any:
    """The output layer [H, V]."""
    return weights["qwen2.embed_tokens.weight"].T if config["tie_word_embeddings"] else weights["lm_head.weight"]


def log_softmax(logits: Any) -> Any:
    """Over the last axis."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def norm(x_BTH: Any, weight_H: Any, config: dict[str, Any]) -> Any:
    """RMS norm."""
    mean_square = np.mean(x_BTH * x_BTH, axis=-1, keepdims=True)
    return x_BTH / np.sqrt(mean_square + config["rms_norm_eps"]) * weight_H


def _attention(x_BTH: Any, weights: Weights, part: str, config: dict[str, Any]) -> Any:
    n_rows, length, width = x_BTH.shape
    n_heads, n_shared = config["num_attention_heads"], config["num_key_value_heads"]
    size = width // n_heads

    def heads(name: str, count: int) -> Any:
        projected = x_BTH @ weights[f"{part}{name}.weight"] + weights[f"{part}{name}.bias"]
        return np.transpose(np.reshape(projected, (n_rows, length, count, size)), (0, 2, 1, 3))

    positions_T, theta = np.arange(length), config["rope_theta"]
    queries = rotated(heads("q_proj", n_heads), positions_T, theta)
    keys = np.repeat(rotated(heads("k_proj", n_shared), positions_T, theta), n_heads // n_shared, axis=1)
    values = np.repeat(heads("v_proj", n_shared), n_heads // n_shared, axis=1)
    scores = queries @ np.swapaxes(keys, -1, -2) / np.sqrt(size) + np.triu(np.full((length, length), -1e30), 1)
    shares = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    mixed = shares / np.sum(shares, axis=-1, keepdims=True) @ values
    return np.reshape(np.transpose(mixed, (0, 2, 1, 3)), (n_rows, length, width)) @ weights[part + "o_proj.weight"]


def rotated(x: Any, positions_T: Any, theta: float) -> Any:
    """Rotary positions of [..., T, size]: the first half of a head is turned with the second."""
    size = x.shape[-1]
    angles = positions_T[:, None] / theta ** (np.arange(0, size, 2) / size)
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second = x[..., : size // 2], x[..., size // 2 :]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
