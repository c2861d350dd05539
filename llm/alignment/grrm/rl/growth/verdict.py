"""The output of a grown judge before any training: the verdict's frame, and scores that follow what was expected."""

from __future__ import annotations

import numpy as np

from grrm.rl.growth.comparison import TYPICAL_LOGIT
from grrm.rl.growth.spelling import Agreement
from grrm.rl.growth.stream import JudgeTokens, Stream

_NOISE = 0.02
_SURE = 16.0  # logit of what the frame of a verdict has next
_SCORE_LOGIT = 21.0  # of all scores together where one is due
_STEEPNESS, _WIDTH = 13.0, 5.3  # of a score's logit in the difference, and of the bell over scores
_AGREEMENT = 1.0  # against the mean of the words, both in standard deviations
_ENDING = 0.2  # against the mean of the words: what two count for in a candidate of ten


def verdict_head(
    vocab_size: int, stream: Stream, tokens: JudgeTokens, agreement: Agreement | None, logit_spread: float, seed: int
) -> np.ndarray:
    """Output weights [stream, V]: next to nothing, but for the tokens of a verdict.

    Where a score is due, score s of 0 to m has the logit g u x - w u^2 with u = 2 s / m - 1 and x how expected the
    candidate's words and its ending were: a bell whose middle moves with x. A judge that sees all candidates measures
    x from their mean and adds how far each agrees with them, which counts as much: `agreement` in standard deviations,
    and `logit_spread` is what one of the words' mean is.
    """
    head_SV = np.random.default_rng(seed).normal(size=(stream.size, vocab_size)).astype(np.float32) * _NOISE
    top = len(tokens.scores) - 1
    for score, token in enumerate(tokens.scores):
        height = 2 * score / top - 1
        head_SV[stream.mean, token] = _STEEPNESS * height
        head_SV[stream.ending, token] = _STEEPNESS * _ENDING * height
        if agreement:
            counts = _STEEPNESS * logit_spread / TYPICAL_LOGIT * _AGREEMENT * height
            head_SV[stream.group_mean, token] = -_STEEPNESS * height
            head_SV[stream.agreement, token] = counts
        head_SV[stream.due[1:], token] = _SCORE_LOGIT - _WIDTH * height**2
        # What the judge's own heads bring to where none is due says nothing.
        head_SV[[stream.begins[-1], *stream.was_due[1:]], token] = -_SURE
    head_SV[stream.begins[-1], tokens.asks[0]] = _SURE
    for mark, token in enumerate(tokens.asks[1:], start=1):
        head_SV[stream.was_due[mark], token] = _SURE
    # Behind a score comes the end, unless there are more candidates, which makes it far less likely than another.
    head_SV[stream.was_due[1:-1], tokens.stop] = 1.5 * _SURE
    head_SV[stream.more, tokens.stop] = -3 * _SURE
    return head_SV
