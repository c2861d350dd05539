"""What all prompts of a judge have in common, so that it can be single tokens of a small judge's vocabulary."""

from __future__ import annotations

import re

from grrm.gqm.chat import render_chatml
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import gqm_prompt, render_response, sqm_prompt

_SOURCE, _CANDIDATES = "\ue000", tuple(chr(0xE001 + index) for index in range(len(CANDIDATE_IDS)))
_FILLED_IN = re.compile(r"[\ue000-\uf8ff]| English| German")
_SCORE = re.compile(r"\d+")


def prompt_frames_of(kind: str, n_candidates: int) -> list[str]:
    """The fixed parts of the prompts of a judge for scores (`kind` "gqm") or for one score ("sqm"), in their order.

    A group prompt of `n_candidates` or fewer consists of them, but for its end, which may follow any candidate. Spaces
    at the seams belong to the words beside them.
    """
    if kind == "sqm":
        prompt = sqm_prompt(_SOURCE, _CANDIDATES[0], "en", "de")
    else:
        prompt = gqm_prompt(_SOURCE, _CANDIDATES[:n_candidates], "en", "de", "score")
    return [piece for piece in _FILLED_IN.split(render_chatml(prompt)) if piece]


def response_frames_of(kind: str, n_candidates: int) -> list[str]:
    """The fixed parts of a verdict without an analysis, before each of its scores."""
    if kind == "sqm":
        return ["\n\n"]
    verdict = render_response("", [0] * n_candidates, "score").rstrip("\n")
    return [piece for piece in _SCORE.split(verdict) if piece]
