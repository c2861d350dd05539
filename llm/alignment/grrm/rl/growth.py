"""A judge that starts as a policy: the policy's layers and words below, new layers and single tokens on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from grrm.rl.policy import policy_class

_SMALL = 0.2  # new layers change next to nothing at first: their outputs are scaled by this
_NEIGHBOUR_FREQUENCIES = 4  # the fastest of the rotary embedding; slower ones cannot tell neighbours apart
_NEIGHBOUR_LOGIT = 30.0
_PARTS = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias", "o_proj.weight")


def grow(policy: Any, extra_layers: int, vocab_size: int, like: Mapping[int, list[int]], seed: int) -> Any:
    """A model with the policy's layers, `extra_layers` new ones and `vocab_size` words.

    The embedding of a new word starts as the mean of those of the policy's words in `like`, with a little noise that
    tells words apart which start alike. The first new layer's attention starts at the token before, by its biases: a
    judge has to hold each token of a candidate against what was to be expected there, which the policy's last layer
    knows one token earlier, and from random weights that takes hundreds of steps to find.
    """
    config = policy.config.__class__(**{**policy.config.to_dict(), "vocab_size": vocab_size, "dtype": "float32"})
    n_old, config.num_hidden_layers = config.num_hidden_layers, config.num_hidden_layers + extra_layers
    paddle.seed(seed)
    judge = policy_class(config.model_type)(config)
    old, new = policy.state_dict(), judge.state_dict()
    for name, weights in new.items():
        if name in old and old[name].shape == weights.shape:
            weights.set_value(old[name])
        elif name in old:
            weights.set_value(_with_words(old[name].numpy(), weights.numpy(), like, config.initializer_range, seed))
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            weights.set_value(weights * _SMALL)
    if extra_layers:
        attention = f"{judge.base_model_prefix}.layers.{n_old}.self_attn"
        _look_one_back({part: new[f"{attention}.{part}"] for part in _PARTS}, config)
    return judge


def _with_words(
    old_VH: np.ndarray, new_VH: np.ndarray, like: Mapping[int, list[int]], noise: float, seed: int
) -> paddle.Tensor:
    """Embeddings with the old words' rows, and the new words' as `like` says."""
    rng = np.random.default_rng(seed)
    words_VH = new_VH.copy()
    words_VH[: len(old_VH)] = old_VH
    for word, models in like.items():
        words_VH[word] = old_VH[models].mean(0) + rng.normal(size=old_VH.shape[1]) * noise * _SMALL
    return paddle.to_tensor(words_VH)


def _look_one_back(attention: Mapping[str, paddle.Tensor], config: Any) -> None:
    """Set an attention layer so that every head attends to the token before.

    With rotary embedding, biases of a pair of dimensions of frequency f, k = (a, 0) and q = (a cos f, -a sin f), add
    a^2 cos(f (d - 1)) to the logit of a token d places back, whatever the tokens are.
    """
    size = config.hidden_size // config.num_attention_heads
    frequencies = config.rope_theta ** (-2.0 * np.arange(_NEIGHBOUR_FREQUENCIES) / size)
    first, second = np.arange(_NEIGHBOUR_FREQUENCIES), size // 2 + np.arange(_NEIGHBOUR_FREQUENCIES)
    amplitude = _NEIGHBOUR_LOGIT**0.5
    key, query = np.zeros(size, np.float32), np.zeros(size, np.float32)
    key[first] = amplitude
    query[first], query[second] = amplitude * np.cos(frequencies), -amplitude * np.sin(frequencies)
    for name, head in (("q_proj", query), ("k_proj", key)):
        bias = attention[f"{name}.bias"]
        bias.set_value(paddle.to_tensor(np.tile(head, bias.shape[0] // size)))
        attention[f"{name}.weight"].set_value(attention[f"{name}.weight"] * _SMALL)
    attention["o_proj.weight"].set_value(attention["o_proj.weight"] / _SMALL)
