"""A judge's card as a page: the tables of `grrm eval judge`, and how to read them, in one file without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.tracking.report.page import page_environment, page_files, policy_hash, write_bytes

COLUMNS = (
    ("tie_calibrated_accuracy", "acc_eq", "Share of pairs of a source's translations that are ordered, or tied, as "
     "people have them; the judge's ties calibrated (Deutsch et al. 2023). With its 95 % interval over sources."),
    ("tie_threshold", "epsilon", "Scores that differ by no more are ties."),
    ("kendall_tau_b_by_source", "tau-b by source", "Kendall's tau-b within each source, averaged."),
    ("kendall_tau_b", "tau-b", "Kendall's tau-b over all translations."),
    ("pearson_by_source", "r by source", "Pearson's correlation within each source, averaged."),
    ("pearson", "r", "Pearson's correlation over all translations."),
    ("soft_pairwise_accuracy", "SPA", "Soft pairwise accuracy of systems (Thompson et al. 2024)."),
    ("pearson_of_systems", "r of systems", "Pearson's correlation of the systems' mean scores."),
    ("coverage", "scored", "Share of the translations with human scores that the judge scored."),
)  # fmt: skip


def write_card_page(card: Mapping[str, Any], path: Path) -> None:
    """Write the card, as card.json has it, as one HTML file."""
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for row in card["rows"]:
        title = f"{row['language_pair']}, {row['domain']}" if row["domain"] else row["language_pair"]
        tables.setdefault(title, []).append(row)
    style = page_files("style.css")
    page = page_environment().get_template("judge_card.html.jinja")
    columns = [{"key": key, "title": title, "help": text} for key, title, text in COLUMNS]
    content = page.render(
        card=card, tables=tables.items(), columns=columns, style=style, style_hash=policy_hash(str(style))
    )
    write_bytes(path, content.encode("utf-8", "replace"))
