"""Putting a judge together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from grrm.errors import UserError
from grrm.rl.growth.calibration import NORMS, Calibration
from grrm.rl.growth.comparison import compare_candidates, expect_words, show_all
from grrm.rl.growth.layer import Layer, layer_of
from grrm.rl.growth.policy_part import mark_what_has_begun, wide_words, widen_layer
from grrm.rl.growth.stream import JudgeTokens, Stream
from grrm.rl.growth.verdict import verdict_head
from grrm.rl.policy import policy_class

COMPARING_LAYERS = 2  # new layers that are written, not learned
_QUIET = 0.2  # of the first weights by which learned layers write to the stream


def grow_judge(
    policy: Any,
    tokens: JudgeTokens,
    prompts: Sequence[Sequence[int]],
    *,
    rank: int = 144,
    free_layers: int = 1,
    relative: bool = True,
    seed: int = 0,
) -> Any:
    """A judge with the policy's layers below, `COMPARING_LAYERS` that compare, and `free_layers` to learn on top.

    Its stream is wider than the policy's (`Stream`), its output is not its embeddings, and every head has keys of its
    own. `prompts`, as token ids, are what scales are measured on; `rank` is how exactly words are compared. Raises
    UserError for a policy with an output of its own, or with too few heads or units for what is to be written.
    """
    config = policy.config
    if free_layers < 1:
        raise UserError(f"free_layers is {free_layers}; a judge needs at least 1 to learn with")
    head_size = config.hidden_size // config.num_attention_heads
    stream = Stream(config.hidden_size, rank, len(tokens.opens), head_size)
    _check_room(config, stream)
    calibration = Calibration.measure(policy, prompts, tokens, rank)
    judge = _fresh(config, stream, free_layers, seed)
    old = {name: weights.numpy() for name, weights in policy.state_dict().items()}
    new = judge.state_dict()
    base, n_old = policy.base_model_prefix, config.num_hidden_layers
    words_VS, longer, scale = wide_words(old[f"{base}.embed_tokens.weight"], stream, tokens, calibration)
    last_norm_H = old[f"{base}.norm.weight"]
    final_norm = np.ones(stream.size, np.float32)
    show_all(final_norm, stream, calibration, last_norm_H)
    written = {f"{base}.embed_tokens.weight": words_VS, f"{base}.norm.weight": final_norm}
    written["lm_head.weight"] = verdict_head(len(words_VS), stream, tokens, relative, seed)
    for number in range(n_old + COMPARING_LAYERS + free_layers):
        prefix = f"{base}.layers.{number}."
        layer = layer_of(new, prefix, head_size, config.rope_theta)
        if number < n_old:
            of_policy = {name[len(prefix) :]: value for name, value in old.items() if name.startswith(prefix)}
            widen_layer(layer, number, of_policy, stream, calibration, longer)
        else:
            _begin_quietly(layer)
        if number == 0:
            mark_what_has_begun(layer, stream, config.num_attention_heads, calibration, longer)
        elif number == n_old:
            expect_words(layer, stream, calibration, last_norm_H, scale)
        elif number == n_old + 1:
            compare_candidates(layer, stream, calibration, last_norm_H)
        elif number > n_old:
            for norm in NORMS:
                show_all(layer[f"{norm}.weight"], stream, calibration, last_norm_H)
        written |= {prefix + name: value for name, value in layer.named().items()}
    for name, weights in new.items():
        weights.set_value(paddle.to_tensor(written[name]))
    return judge


def _fresh(config: Any, stream: Stream, free_layers: int, seed: int) -> Any:
    sizes = {
        "hidden_size": stream.size,
        "num_attention_heads": stream.n_heads,
        "num_key_value_heads": stream.n_heads,
        "num_hidden_layers": config.num_hidden_layers + COMPARING_LAYERS + free_layers,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    paddle.seed(seed)
    return policy_class(config.model_type)(config.__class__(**{**config.to_dict(), **sizes}))


def _begin_quietly(layer: Layer) -> None:
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        layer[name] = layer[name] * _QUIET


def _check_room(config: Any, stream: Stream) -> None:
    moved = [stream.rank + stream.n_marks, stream.rank + 3 * stream.n_marks]
    if not config.tie_word_embeddings:
        raise UserError("a judge cannot be grown from a model whose output is not its embeddings (tie_word_embeddings)")
    heads = sum(-(-values // stream.head_size) for values in moved)
    if config.model_type != "qwen2":
        raise UserError(f"a judge cannot be grown from a model of type {config.model_type!r}; give a qwen2")
    if max(heads, config.num_attention_heads + 1, 3) > stream.n_heads:
        raise UserError(
            f"a judge of rank {stream.rank} needs {max(heads, config.num_attention_heads + 1, 3)} attention heads and "
            f"has {stream.n_heads}: choose another rank"
        )
    if stream.rank > config.hidden_size or 2 * stream.rank > config.intermediate_size:
        raise UserError(
            f"a judge of rank {stream.rank} needs {stream.rank} dimensions and {2 * stream.rank} units in the "
            f"policy's MLP, which has {config.hidden_size} and {config.intermediate_size}: lower the rank"
        )
    if stream.n_marks + 1 > stream.head_size // 2 or stream.n_marks > stream.head_size:
        raise UserError(
            f"{stream.n_candidates} candidates do not fit into heads of {stream.head_size}: judge fewer at a time"
        )
