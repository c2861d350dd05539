"""A page on which a person annotates groups of translations: one file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.gqm.languages import display_name
from grrm.tracking.report.page import page_files, scripted_page, write_bytes


def write_annotation_page(data: Mapping[str, Any], path: Path) -> None:
    """Write the page of these groups, as `grrm.evaluation.annotation.campaign.page_data` has them."""
    script = page_files("browser/elements.js", "annotation/spans.js", "annotation/annotate.js")
    style = page_files("style.css", "browser/report.css", "annotation/annotate.css")
    languages = {group[name] for group in data["groups"] for name in ("src_lang", "trg_lang")}
    shown = {
        **data,
        "languages": {language: display_name(language) for language in languages},
        "strings": json.loads(page_files("annotation/strings.json")),
    }
    write_bytes(path, scripted_page("Annotation", shown, script, style).encode("utf-8", "replace"))
