"""The first two new layers: how expected each word was, and what that makes of each candidate."""

from __future__ import annotations

import numpy as np

from grrm.rl.growth.calibration import Calibration
from grrm.rl.growth.layer import Layer
from grrm.rl.growth.policy_part import (
    BEGUN_SIZE,
    CODE_SIZE,
    LOUD,
    MARK_SIZE,
    SINGLE_SIZE,
    WORD_SIZE,
    loud_square,
    own_size,
)
from grrm.rl.growth.stream import Stream

COMPARING_HEADS = 3
SQUARE_SIZE = 4.0  # of `square` where it is typical; it is many times that at a long word, where nothing reads it
TYPICAL_LOGIT = 4.0  # how far the logits of words are from 0
OPEN = 4.0  # where silu is nearly the identity
_ELSEWHERE_LOGIT, _BEGINNING_LOGIT, _ENDING_LOGIT = 20.0, 40.0, 30.0


def expect_words(
    layer: Layer, stream: Stream, calibration: Calibration, last_norm_H: np.ndarray, written_scale: float
) -> None:
    """What the policy expected at the token before, times what is written, into `expected_here`.

    Attention brings the policy's final hidden state one token on, shortened, beside the word that came. The MLP
    multiplies the two. The sum is the policy's logit of the word, and the log-probability where a z-loss has brought
    the normaliser to 1. Marks are moved along with it, up from their small size, and `due` one token on as `was_due`.
    """
    norm = layer["input_layernorm.weight"]
    own = own_size(stream, calibration)
    norm[: stream.policy] = last_norm_H * np.sqrt(stream.policy / stream.size)
    norm[stream.written] = own / WORD_SIZE
    norm[stream.spelled] = own / CODE_SIZE
    norm[stream.begins] = norm[stream.due] = own / MARK_SIZE
    norm[stream.begun] = own / BEGUN_SIZE
    before = np.zeros((stream.size, stream.rank + stream.n_marks), np.float32)
    before[: stream.policy, : stream.rank] = calibration.of_states * LOUD
    before[stream.due, stream.rank + np.arange(stream.n_marks)] = LOUD
    kept = np.concatenate([stream.written, stream.begins, stream.begun, stream.due, stream.spelled])
    here = np.zeros((stream.size, len(kept)), np.float32)
    here[kept, np.arange(len(kept))] = LOUD
    here[stream.spelled] *= SINGLE_SIZE / LOUD
    beside_policy = np.arange(stream.policy, stream.size)
    layer.protect(np.concatenate([stream.expected, beside_policy]))
    free = layer.move(0, 1, before, np.concatenate([stream.expected, stream.was_due]))
    layer.move(free, 0, here, kept)
    show_all(layer["post_attention_layernorm.weight"], stream, calibration, last_norm_H)
    _multiply(layer, stream, SINGLE_SIZE / TYPICAL_LOGIT * WORD_SIZE / written_scale)


def _multiply(layer: Layer, stream: Stream, scale: float) -> None:
    for units, sign in layer.product_units(0, stream.rank):
        layer["mlp.gate_proj.weight"][stream.expected, units] = sign
        layer["mlp.up_proj.weight"][stream.written, units] = sign
        layer["mlp.down_proj.weight"][units, stream.expected_here] = scale


def show_all(norm: np.ndarray, stream: Stream, calibration: Calibration, last_norm_H: np.ndarray) -> None:
    """Let a norm behind the first new layer's attention show every part at the size that it was written for."""
    whole = np.sqrt(loud_square(stream, calibration))
    norm[: stream.policy] = last_norm_H * whole / np.sqrt(calibration.last_square)
    norm[stream.expected] = whole / LOUD
    norm[stream.policy :] = whole / LOUD
    norm[stream.singles] = norm[stream.spelled] = whole / SINGLE_SIZE
    norm[stream.square] = whole / SQUARE_SIZE
    norm[stream.usual] = whole / LOUD


def compare_candidates(layer: Layer, stream: Stream) -> None:
    """Three heads that read `expected_here` where a score is due: of its candidate's words, its ending, all words.

    A query for candidate i has -1 for every mark before it, i for its own and -n for the next: with the marks that
    have begun sharing 1, its words have the logit 0, all others have less, and what varies from word to word cannot
    make one of them count more. The tokens between candidates are kept out.
    """
    layer.protect(stream.singles)
    layer.protect(np.arange(stream.begins[0], stream.size))
    heads = range(COMPARING_HEADS)
    layer.empty_heads(heads)
    for head, target in zip(heads, (stream.mean, stream.ending, stream.group_mean), strict=True):
        layer["self_attn.v_proj.weight"][stream.expected_here, layer.columns(head)[0]] = 1
        layer["self_attn.o_proj.weight"][layer.columns(head)[0], target] = SINGLE_SIZE
    still = layer.still_pairs(stream.n_marks + 1)
    look_at_own_words(layer, stream, layer.columns(0)[still])
    _look_at_ending(layer, stream, layer.columns(1)[still])
    look_at_all_candidates(layer, stream, layer.columns(2)[still])
    _see_whether_there_are_more(layer, stream)


def look_at_own_words(layer: Layer, stream: Stream, still: np.ndarray) -> None:
    """Where a score is due, at the words of its candidate, all alike."""
    query, key = layer["self_attn.q_proj.weight"], layer["self_attn.k_proj.weight"]
    amplitude = layer.amplitude(_ELSEWHERE_LOGIT)
    # The stillest pair keeps out what every query has to keep out; the mark of the end, which is near, has the fastest.
    _only_words(layer, stream, still[0])
    marks = still[1:]
    key[stream.begun, marks] = amplitude
    for candidate in range(1, stream.n_candidates + 1):
        wanted = np.zeros(stream.n_marks)
        wanted[:candidate] = -1
        wanted[candidate] = candidate
        wanted[candidate + 1] = wanted[-1] = -stream.n_marks
        query[stream.due[candidate], marks] = amplitude * wanted


def _look_at_ending(layer: Layer, stream: Stream, still: np.ndarray) -> None:
    """At the token that begins the next candidate, else at the end of the prompt, which is behind whichever is last."""
    query, key = layer["self_attn.q_proj.weight"], layer["self_attn.k_proj.weight"]
    amplitude = layer.amplitude(_ENDING_LOGIT)
    for candidate in range(1, stream.n_candidates + 1):
        query[stream.due[candidate], still[candidate]] = amplitude
        key[stream.begins[-1], still[candidate]] = amplitude / 2
        key[stream.begins[candidate + 1], still[candidate]] = amplitude


def look_at_all_candidates(layer: Layer, stream: Stream, still: np.ndarray) -> None:
    """Logit 0 once the first candidate has begun, less at the source and behind the end."""
    key = layer["self_attn.k_proj.weight"]
    amplitude = layer.amplitude(_ELSEWHERE_LOGIT)
    layer["self_attn.q_proj.bias"][still[0]] = amplitude
    key[stream.begun[1], still[0]] = 2 * amplitude
    key[stream.begun[0], still[0]] = -2 * amplitude
    key[stream.begun[-1], still[0]] = -6 * amplitude
    _only_words(layer, stream, still[1])


def _see_whether_there_are_more(layer: Layer, stream: Stream) -> None:
    """In the MLP, for each candidate: its score was due just before, times the next candidate has begun."""
    units = np.arange(stream.n_candidates - 1)
    layer.empty_units(units)
    layer["mlp.gate_proj.weight"][stream.was_due[1 + units], units] = OPEN
    layer["mlp.up_proj.weight"][stream.begun[2 + units], units] = 1
    layer["mlp.down_proj.weight"][units, stream.more] = SINGLE_SIZE * stream.n_marks / OPEN


def _only_words(layer: Layer, stream: Stream, dimension: int) -> None:
    amplitude = layer.amplitude(_BEGINNING_LOGIT)
    layer["self_attn.k_proj.weight"][stream.begins, dimension] = -amplitude
    layer["self_attn.k_proj.weight"][stream.due[1:], dimension] = -amplitude
    layer["self_attn.q_proj.bias"][dimension] = amplitude
