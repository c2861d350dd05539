"""How far each candidate says what its group says: x of `Agreement`, from words' codes, in three layers."""

from __future__ import annotations

import numpy as np

from grrm.rl.growth.calibration import NORMS, Calibration
from grrm.rl.growth.comparison import COMPARING_HEADS, OPEN, SQUARE_SIZE, look_at_all_candidates, look_at_own_words
from grrm.rl.growth.layer import Layer
from grrm.rl.growth.policy_part import (
    BEGUN_SIZE,
    CODE_SIZE,
    LOUD,
    MARK_SIZE,
    SINGLE_SIZE,
    beside_policy,
    loudness,
)
from grrm.rl.growth.spelling import OWN_SHARE, Agreement
from grrm.rl.growth.stream import Stream

AGREEMENT_HEADS = 3
_NOTHING_LOGIT, _CLOSING_LOGIT = 60.0, 10.0
_SHUT = 30.0  # of a unit whose silu is to be 0


def gather_codes(layer: Layer, stream: Stream, head: int, calibration: Calibration, number: int, longer: float) -> None:
    """In the policy's last layer: the mean code m of a candidate's words where the next one begins.

    That token has no code of its own, so m stands in `spelled`. All others look at the token that begins the prompt,
    which has none either. (The end of the last candidate cannot tell which one it closes.)
    """
    square = calibration.squares[number, NORMS[0]] * stream.policy + beside_policy(calibration, longer)
    typical = np.sqrt(square / stream.size)
    norm = layer["input_layernorm.weight"]
    norm[stream.begins] = norm[stream.due] = typical / MARK_SIZE
    norm[stream.begun] = typical / BEGUN_SIZE
    norm[stream.spelled] = typical / CODE_SIZE
    columns = layer.columns(head)
    stillest, nothing, *marks = columns[layer.still_pairs(stream.n_marks + 2)]
    look_at_own_words(layer, stream, np.array([stillest, *marks]))
    amplitude = layer.amplitude(_NOTHING_LOGIT)
    layer["self_attn.k_proj.weight"][stream.begins[0], nothing] = amplitude
    layer["self_attn.q_proj.bias"][nothing] = amplitude
    layer["self_attn.q_proj.weight"][stream.due[1:], nothing] = -2 * amplitude
    layer["self_attn.v_proj.weight"][stream.spelled, columns[: stream.spelling]] = 1
    layer["self_attn.o_proj.weight"][columns[: stream.spelling], stream.spelled] = CODE_SIZE


def square_codes(layer: Layer, stream: Stream, agreement: Agreement, first_unit: int) -> None:
    """In the MLP of the first new layer: `square` is m m, as a share of what is typical."""
    for units, sign in layer.product_units(first_unit, stream.spelling):
        layer["mlp.gate_proj.weight"][stream.spelled, units] = sign
        layer["mlp.up_proj.weight"][stream.spelled, units] = sign
        layer["mlp.down_proj.weight"][units, stream.square] = SQUARE_SIZE / agreement.square


def judge_agreement(
    layer: Layer, stream: Stream, agreement: Agreement, calibration: Calibration, first_unit: int
) -> None:
    """In the second new layer: x into `agreement` where a score is due, in standard deviations.

    m and the mean c of all candidates' codes come to where what a single word had is taken away, and M is the mean of
    m m over the candidates, as far as their ends tell which they are.
    """
    own, usual, closings = range(COMPARING_HEADS, COMPARING_HEADS + AGREEMENT_HEADS)
    layer.protect(np.concatenate([stream.spelled, stream.usual]))
    layer.empty_heads((own, usual, closings))
    value, out = layer["self_attn.v_proj.weight"], layer["self_attn.o_proj.weight"]
    for head, target, size in ((own, stream.spelled, SINGLE_SIZE), (usual, stream.usual, LOUD)):
        columns = layer.columns(head)[: stream.spelling]
        value[stream.spelled, columns] = 1
        out[columns, target] = size
    look_at_own_words(layer, stream, layer.columns(own)[layer.still_pairs(stream.n_marks + 1)])
    look_at_all_candidates(layer, stream, layer.columns(usual)[layer.still_pairs(2)])
    _look_at_closings(layer, stream, layer.columns(closings)[layer.still_pairs(1)[0]])
    value[stream.square, layer.columns(closings)[0]] = 1
    out[layer.columns(closings)[0], stream.square] = SQUARE_SIZE
    here = np.zeros((stream.size, 2 * stream.spelling), np.float32)
    here[stream.spelled, np.arange(stream.spelling)] = -SINGLE_SIZE
    here[stream.usual, stream.spelling + np.arange(stream.spelling)] = -LOUD
    layer.move(closings + 1, 0, here, np.concatenate([stream.spelled, stream.usual]))
    _multiply(layer, stream, agreement, loudness(stream, calibration), first_unit)


def _look_at_closings(layer: Layer, stream: Stream, still: int) -> None:
    """At the tokens between two candidates, all alike."""
    amplitude = layer.amplitude(_CLOSING_LOGIT)
    layer["self_attn.k_proj.weight"][stream.begins[2:-1], still] = amplitude
    layer["self_attn.q_proj.bias"][still] = amplitude


def _multiply(layer: Layer, stream: Stream, agreement: Agreement, factor: float, first_unit: int) -> None:
    """m (c - b m) - c c + b M where a score is due; elsewhere what has begun shuts all units."""
    gate, up, down = (layer[f"mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    for units, sign in layer.product_units(first_unit, stream.spelling):
        gate[stream.spelled, units] = sign
        up[stream.usual, units] = sign
        up[stream.spelled, units] = -sign * OWN_SHARE
        down[units, stream.agreement] = SINGLE_SIZE / agreement.spread
    for units, sign in layer.product_units(first_unit + 2 * stream.spelling, stream.spelling):
        gate[stream.usual, units] = sign
        up[stream.usual, units] = -sign
        down[units, stream.agreement] = SINGLE_SIZE / agreement.spread
    last = first_unit + 4 * stream.spelling
    shut = slice(first_unit, last)
    gate[stream.begun, shut] = -_SHUT
    gate[stream.due[1:], shut] = _SHUT / factor  # there the marks of what has begun are not 0 but as small as this
    layer.empty_units(last)
    gate[stream.due[1:], last] = OPEN
    up[stream.square, last] = 1
    down[last, stream.agreement] = SINGLE_SIZE * OWN_SHARE * agreement.square / agreement.spread / OPEN
