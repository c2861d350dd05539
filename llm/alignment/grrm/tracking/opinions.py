"""Verdicts of other judges on a run's dumped groups, stored beside it: one JSON line a group, a file for each judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from grrm.data.atomic import atomic_path
from grrm.gqm.groups import Verdict

FOLDER = "rejudged"  # below output_dir


def write_opinions(
    run: Path,
    name: str,
    records: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Verdict],
    *,
    keeps_others: bool = False,
) -> Path:
    """Keep the verdicts beside the run, one JSON line a group, where `grrm report` finds them. Returns the file.

    With `keeps_others` the file's opinions on other groups stay, else it is written anew.
    """
    file = name.replace("%", "%25").replace("/", "%2F")  # a judge may be called folder/file.py:function
    path = Path(run) / FOLDER / f"{file}.jsonl"
    new = {(record["step"], record["group_id"]) for record in records}
    others = read_opinions(run).get(name, {}) if keeps_others else {}
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as lines:
        for opinion in (opinion for key, opinion in others.items() if key not in new):
            lines.write(json.dumps(opinion, ensure_ascii=False, allow_nan=False) + "\n")
        for record, verdict in zip(records, verdicts, strict=True):
            opinion = {
                "step": record["step"],
                "group_id": record["group_id"],
                "statuses": [status.value for status in verdict.statuses],
                "scores": list(verdict.scores),
                "analysis": verdict.analysis,
            }
            lines.write(json.dumps(opinion, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read_opinions(run: Path) -> dict[str, dict[tuple[int, str], dict[str, Any]]]:
    """Read the files of `write_opinions`: of each judge by name, its opinion by step and group id."""
    opinions_of: dict[str, dict[tuple[int, str], dict[str, Any]]] = {}
    for path in sorted((Path(run) / FOLDER).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            opinions = [json.loads(line) for line in lines]
        opinions_of[unquote(path.stem)] = {(opinion["step"], opinion["group_id"]): opinion for opinion in opinions}
    return opinions_of
