"""The policy's own layers and words, unchanged in what they compute, in a judge's wider stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from grrm.rl.growth.calibration import NORMS, Calibration
from grrm.rl.growth.layer import Layer
from grrm.rl.growth.stream import JudgeTokens, Stream

# What stands beside the policy's dimensions is kept this small below the first new layer, so that the norms there see
# the policy alone. The first new layer brings it up to the size of the rest.
WORD_SIZE, CODE_SIZE, MARK_SIZE, BEGUN_SIZE = 0.02, 0.01, 0.15, 0.1
LOUD = 48.0  # of what the new layers read in the stream, many times as much as the policy's own part
SINGLE_SIZE = 12.0  # what the single dimensions are about as large as
_COUNT_LOGIT = 20.0


def wide_words(
    old_VH: np.ndarray, stream: Stream, tokens: JudgeTokens, calibration: Calibration, codes_VS: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Embeddings [V, stream], how much longer they are than the policy's (a factor), and the scale of `written`.

    A token that closes a candidate is written as the policy's end of a translation. Marks are as long as their token's
    own embedding asks for, so that all come out alike behind the first norm.
    """
    words_VS = np.zeros((len(old_VH), stream.size), np.float32)
    words_VS[:, : stream.policy] = old_VH
    written_VR = old_VH @ calibration.of_words
    scale = WORD_SIZE / np.sqrt((written_VR[calibration.words] ** 2).mean())
    words_VS[:, stream.written] = written_VR * scale
    words_VS[np.ix_(tokens.closes, stream.written)] = written_VR[tokens.stop] * scale
    words_VS[:, stream.spelled] = codes_VS * CODE_SIZE
    lengths_V = np.sqrt((old_VH**2).sum(1))
    marks_V = MARK_SIZE * lengths_V / lengths_V[list(tokens.opens)].mean()
    for mark, token in enumerate((tokens.begin, *tokens.opens)):
        words_VS[token, stream.begins[mark]] = marks_V[token]
    words_VS[tokens.end, stream.begins[-1]] = marks_V[tokens.end]
    for mark, token in enumerate(tokens.opens[1:], start=1):
        words_VS[token, stream.due[mark]] = MARK_SIZE
    for mark, token in enumerate(tokens.asks, start=1):
        words_VS[token, stream.due[mark]] = MARK_SIZE * loudness(stream, calibration)
    beside_V, own_V = (words_VS[:, stream.policy :] ** 2).sum(1), lengths_V**2
    share = float((beside_V / own_V)[calibration.words].max())
    words_VS[:, stream.filler] = np.sqrt(np.maximum(share * own_V - beside_V, 0))
    # Where a score is due nothing of the policy matters, and what a norm shows must not depend on it.
    words_VS[tokens.asks, stream.filler] = filler_where_due(stream)
    return words_VS, 1 + share, scale


def loud_square(stream: Stream, calibration: Calibration) -> float:
    """Mean square of the stream behind the first new layer's attention."""
    loud = LOUD**2 * (stream.rank + calibration.state_square)
    return float((loud + SINGLE_SIZE**2 * stream.spelling) / stream.size)


def own_size(stream: Stream, calibration: Calibration) -> float:
    """Root mean square of the stream below the first new layer."""
    return float(np.sqrt(stream.policy * calibration.last_square / stream.size))


def filler_where_due(stream: Stream) -> float:
    """As much as what is written, which that token does without."""
    return float(np.sqrt(LOUD**2 * stream.rank + SINGLE_SIZE**2 * stream.spelling))


def loudness(stream: Stream, calibration: Calibration) -> float:
    """How many times as large the stream is where a score is due as elsewhere, below the first new layer."""
    return filler_where_due(stream) / stream.size**0.5 / own_size(stream, calibration)


def widen_layer(
    layer: Layer, number: int, old: dict[str, np.ndarray], stream: Stream, calibration: Calibration, longer: float
) -> None:
    """Fill `layer` with a policy's layer: its heads first, each with its own copy of the keys that heads shared."""
    layer.clear()
    policy = np.arange(stream.policy)
    n_old_heads = len(old["self_attn.q_proj.bias"]) // layer.head_size
    for part in "qkv":
        for kind in ("weight", "bias"):
            name = f"self_attn.{part}_proj.{kind}"
            values = _a_copy_per_head(old[name], n_old_heads, layer.head_size)
            if kind == "weight":
                layer[name][: stream.policy, : values.shape[-1]] = values
            else:
                layer[name][: len(values)] = values
    layer["self_attn.o_proj.weight"][: n_old_heads * layer.head_size, : stream.policy] = old["self_attn.o_proj.weight"]
    for name in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
        layer[name][: stream.policy] = old[name]
    layer["mlp.down_proj.weight"][:, : stream.policy] = old["mlp.down_proj.weight"]
    beside = beside_policy(calibration, longer)
    for norm in NORMS:
        own = calibration.squares[number, norm] * stream.policy
        whole = longer * own if (number, norm) == (0, NORMS[0]) else own + beside
        # The norm divides by the root mean square over more dimensions than the policy has.
        layer[f"{norm}.weight"][policy] = old[f"{norm}.weight"] * np.sqrt(whole / own * stream.policy / stream.size)


def beside_policy(calibration: Calibration, longer: float) -> float:
    """How long, squared, what stands beside the policy's own dimensions is behind the first attention."""
    return (longer - 1) * _embedding_square(calibration) * len(calibration.of_states) + BEGUN_SIZE**2


def _embedding_square(calibration: Calibration) -> float:
    return calibration.squares[0, NORMS[0]]


def mark_what_has_begun(
    layer: Layer, stream: Stream, n_policy_heads: int, calibration: Calibration, longer: float
) -> None:
    """A head of the first layer: each token sees the tokens that begin something, all alike, and adds their marks.

    At a token of candidate i, behind the source and i - 1 candidates, each of the i + 1 marks is 1 / (i + 1).
    """
    own = np.sqrt(longer * _embedding_square(calibration) * stream.policy / stream.size)
    layer["input_layernorm.weight"][stream.begins] = own / MARK_SIZE
    head = layer.columns(n_policy_heads)
    amplitude = layer.amplitude(_COUNT_LOGIT)
    still = head[layer.still_pairs(1)[0]]
    layer["self_attn.k_proj.weight"][stream.begins, still] = amplitude
    layer["self_attn.q_proj.bias"][still] = amplitude
    values = head[: stream.n_marks]
    layer["self_attn.v_proj.weight"][stream.begins, values] = 1
    layer["self_attn.o_proj.weight"][values, stream.begun] = BEGUN_SIZE


def _a_copy_per_head(values: np.ndarray, n_heads: int, head_size: int) -> Any:
    """Weights or biases of queries, keys or values, with those that several heads share once for each of them."""
    split = values.reshape(*values.shape[:-1], -1, head_size)
    return np.repeat(split, n_heads // split.shape[-2], axis=-2).reshape(*values.shape[:-1], n_heads * head_size)
