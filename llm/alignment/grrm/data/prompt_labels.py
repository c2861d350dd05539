"""Supervision inside prompts: what a model is to predict where it has read a part of the prompt.

A row's labels are pairs `[position, id]`: behind the prompt's token at that position, the model learns to predict that
token, one it need not find there. They fit one tokenizer only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

PromptLabels = tuple[tuple[int, int], ...]  # position of a token in the prompt, id of the token to predict there


def read_labels(value: Any, n_tokens: int) -> PromptLabels:
    """The labels of a row whose prompt has `n_tokens`. Raises ValueError that says what is wrong with them."""
    if not isinstance(value, list):
        raise ValueError("must be a list of [position, token id]")
    labels: list[tuple[int, int]] = []
    for entry in value:
        if not isinstance(entry, list) or [type(part) for part in entry] != [int, int] or entry[1] < 0:
            raise ValueError("must be a list of [position, token id]")
        position, token = entry
        if not 0 <= position < n_tokens:
            raise ValueError(f"has the position {position}, which is not in a prompt of {n_tokens} tokens")
        labels.append((position, token))
    labels.sort()
    for (position, _), (following, _) in pairwise(labels):
        if position == following:
            raise ValueError(f"has two labels at position {position}")
    return tuple(labels)
