"""Supervision inside prompts: what a model is to predict where it has read a part of the prompt.

A row's labels are spans `[start, end, text]` of its prompt in characters: every token whose last character lies in a
span predicts `text`, one token, instead of nothing. A judge that is told about each word of a candidate has a hundred
times as much to learn from as its scores alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Span = tuple[int, int, str]
PromptLabels = tuple[tuple[int, int], ...]  # position of a token in the prompt, id of the token to predict there


def read_spans(value: Any, prompt: str) -> list[Span]:
    """The spans of a row, sorted. Raises ValueError that says what is wrong with them."""
    if not isinstance(value, list):
        raise ValueError("must be a list of [start, end, text]")
    spans: list[Span] = []
    for entry in value:
        if not isinstance(entry, list) or [type(part) for part in entry] != [int, int, str]:
            raise ValueError("must be a list of [start, end, text]")
        start, end, text = entry
        if not 0 <= start < end <= len(prompt):
            raise ValueError(f"has the span {start} to {end}, which is not in a prompt of {len(prompt)} characters")
        spans.append((start, end, text))
    spans.sort()
    for (_, end, _), (start, _, _) in pairwise(spans):
        if start < end:
            raise ValueError(f"has two spans at character {start}")
    return spans


def label_tokens(spans: Sequence[Span], ends: Sequence[int], token_of: Callable[[str], int]) -> PromptLabels:
    """The labels of a prompt whose tokens end before the characters `ends`; `token_of` is a text's one token."""
    labels: list[tuple[int, int]] = []
    left = iter(spans)
    span = next(left, None)
    for position, end in enumerate(ends):
        while span is not None and span[1] < end:
            span = next(left, None)
        if span is None:
            break
        if span[0] < end <= span[1]:
            labels.append((position, token_of(span[2])))
    return tuple(labels)
