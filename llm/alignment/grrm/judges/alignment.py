"""One scale for scores that were given in separate chunks, by a candidate that all chunks share."""

from __future__ import annotations

from grrm.gqm.grammar import MAX_SCORE


def align_score(score: float, anchor_here: float, anchor: float) -> float:
    """`score` (0 to 10) of a chunk in which the anchor got `anchor_here`, on the scale on which it has `anchor`.

    With s the score, a the anchor's score here and m its common score:
    s < a: m s / a;  s = a: m;  s > a: 10 - (10 - m) (10 - s) / (10 - a).
    This is the line through (0, 0), (a, m) and (10, 10), so the result stays within 0 to 10 and the order inside the
    chunk stays as it is, which adding m - a and cutting off would not give. a = m changes nothing; where a is 0 or 10
    one of the branches is empty. Should m be 0 or 10 and a not, one side of the anchor collapses onto it; m as a mean
    of several a is 0 or 10 only when they all are.
    """
    if score == anchor_here:
        return anchor
    if anchor_here == anchor:
        return score
    if score < anchor_here:
        return anchor * score / anchor_here
    return MAX_SCORE - (MAX_SCORE - anchor) * (MAX_SCORE - score) / (MAX_SCORE - anchor_here)
