"""Counts of the pairs of each language pair, printed as the original prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

_RULE = "=" * 60
_TOTAL = "Total"


def language_matrices(counts: Mapping[tuple[str, str], int]) -> str:
    """Two tables over source (down) and target languages (across): numbers of pairs, and percentages of all.

    English comes first, the others by name, totals last. `counts` are the pairs by source and target language.
    """
    n_pairs = sum(counts.values())
    sources, targets = (sorted({*names}, key=lambda name: (name != "en", name)) for names in zip(*counts, strict=True))
    inner = np.array([[counts.get((src, trg), 0) for trg in targets] for src in sources])
    with_rows = np.hstack([inner, inner.sum(axis=1, keepdims=True)])
    cells = np.vstack([with_rows, with_rows.sum(axis=0, keepdims=True)])
    labels = ([*sources, _TOTAL], [*targets, _TOTAL])
    percent = np.round(cells / n_pairs * 100, 2)
    return "\n".join(
        [
            "Language Distribution Matrix (src_lang → trg_lang)",
            _RULE,
            _grid(*labels, [[str(value) for value in column] for column in cells.T.tolist()]),
            "",
            "Percentage Distribution:",
            _RULE,
            _grid(*labels, [_decimals(column) for column in percent.T.tolist()]),
            "",
            f"Total samples: {n_pairs}",
        ]
    )


def _decimals(column: Sequence[float]) -> list[str]:
    """With as many decimals, one or two, as the column needs."""
    shown = [f"{value:.2f}" for value in column]
    return [text[:-1] for text in shown] if all(text.endswith("0") for text in shown) else shown


def _grid(rows: Sequence[str], names: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    first = max(map(len, ("src_lang", *rows)))
    widths = [max(map(len, (name, *column))) for name, column in zip(names, columns, strict=True)]
    lines = [_line("trg_lang", names, first, widths), "src_lang".ljust(first + sum(widths) + 2 * len(widths))]
    for row, *cells in zip(rows, *columns, strict=True):
        lines.append(_line(row, cells, first, widths))
    return "\n".join(lines)


def _line(label: str, cells: Sequence[str], first: int, widths: Sequence[int]) -> str:
    return label.ljust(first) + "".join(f"  {cell.rjust(width)}" for cell, width in zip(cells, widths, strict=True))
