"""Pages that need nothing but themselves: templates, data and scripts put inside, numbers for people."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grrm.data.atomic import write_bytes
from grrm.gqm.languages import display_name
from grrm.tracking.console import format_seconds

_FOLDER = Path(__file__).parent
# What could end a script element, or a line of a script, in text that came from anywhere.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page_environment(*folders: Path) -> Environment:
    """Templates of `folders` and of this one, whatever is put in escaped; a name that is not given raises."""
    environment = Environment(
        loader=FileSystemLoader([*folders, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": format_seconds, "number": show_number}
    return environment


def show_number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def page_files(*names: str) -> Markup:
    """Scripts or style sheets of this package, one after another, as they go into an element of a page."""
    return Markup("\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names))


def policy_hash(content: str) -> str:
    """The source of a security policy that allows an inline script or style sheet with this content and no other."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii") + "'"


def embedded_json(value: Any) -> Markup:
    """JSON that stays text in a script element whatever its strings contain. Raises ValueError on NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_UNSAFE))


def scripted_page(title: str, data: Any, script: Markup, style: Markup) -> str:
    """The page that `script` draws of `data`. Its policy allows its own script and style only."""
    return (
        page_environment()
        .get_template("run_report.html.jinja")
        .render(
            title=title,
            data=embedded_json(data),
            script=script,
            style=style,
            script_hash=policy_hash(script),
            style_hash=policy_hash(style),
        )
    )


def write_annotation_page(data: Mapping[str, Any], path: Path) -> None:
    """Write the page on which a person annotates groups, as `evaluation.annotation.campaign.page_data` has them."""
    script = page_files("browser/elements.js", "annotation/spans.js", "annotation/annotate.js")
    style = page_files("style.css", "browser/report.css", "annotation/annotate.css")
    languages = {group[name] for group in data["groups"] for name in ("src_lang", "trg_lang")}
    names = {language: display_name(language) for language in languages}
    shown = {**data, "languages": names, "strings": json.loads(page_files("annotation/strings.json"))}
    write_bytes(path, scripted_page("Annotation", shown, script, style).encode("utf-8", "replace"))


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
