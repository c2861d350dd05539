"""Groups of scored translations whose gold is a simple property of the text."""

from __future__ import annotations

import random
from typing import Any

WORDS = ["am", "fünften", "Mai", "kostet", "das", "Zimmer", "zwölf", "Euro", "und", "drei", "Kilometer", "weiter"]


def scored_rows(n_rows: int, seed: int = 0, size: int = 4) -> list[dict[str, Any]]:
    """Groups of texts; a text's gold, 0 to 100, is the share of its words that are "gut", all of a group different."""
    rng = random.Random(seed)
    rows = []
    for number in range(n_rows):
        shares = rng.sample(range(9), size)
        texts = []
        for n_good in shares:
            words = ["gut"] * n_good + rng.choices(WORDS, k=8 - n_good)
            rng.shuffle(words)
            texts.append(" ".join(words))
        rows.append(
            {
                "src_text": f"source {number} of {n_rows}",
                "src_lang": "en",
                "trg_lang": ("de", "es")[number % 2],
                "mt_texts": texts,
                "scores": [100 * n_good / 8 for n_good in shares],
            }
        )
    return rows
