"""Error spans of a dumped candidate as a number per token, character by character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

WEIGHTS = {"minor": 1.0, "major": 5.0, "critical": 10.0}


def severities(candidate: dict[str, Any], decode: Callable[[list[int]], str], chosen: dict[str, float]) -> np.ndarray:
    """The weight of the most severe span that each token of a response shares a character with, else 0."""
    ids, response, weights = candidate["token_ids"], candidate["response"], {**WEIGHTS, **chosen}
    owners: list[set[int]] = [set() for _ in response]
    for t in range(len(ids)):
        before, after = decode(ids[:t]), decode(ids[: t + 1])
        for at in range(len(response)):
            unfinished = before[at : at + 1] != response[at]
            if unfinished and len(before.rstrip("\ufffd")) <= at < len(after) and before != after:
                owners[at].add(t)
    row = np.zeros(len(ids))
    offset = response.rfind(candidate["translation"] or "")
    for span in candidate["spans"] or ():
        for at in range(offset + span["start"], offset + span["end"]):
            for t in owners[at]:
                row[t] = max(row[t], weights[span["severity"]])
    return row
