"""Groups as a report has them: prompts once, equal samples once, no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.tracking.report.selection import (
    ANALYSIS_LENGTH,
    GroupKey,
    PromptKey,
    Scores,
    chosen_records,
    prompt_key,
)


class PageGroups:
    """Collects the groups of all runs of a page; `prompts` and `groups` are JSON-ready and refer to each other."""

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self._number_of: dict[PromptKey, int] = {}

    def add(self, number: int, run: Path, keys: set[GroupKey]) -> None:
        """Add these groups of the run with this number. Raises ValueError on a damaged dump."""
        for record, judges, tau in chosen_records(run, keys):
            analysis = (record["verdict"] or {}).get("analysis") or ""
            is_long = len(analysis) > ANALYSIS_LENGTH
            self.groups.append(
                {
                    "run": number,
                    "step": int(record["step"]),
                    "prompt": self._prompt(record),
                    "use": record.get("use", "trained"),
                    "signal": record.get("signal"),
                    "tau": _rounded(tau),
                    "judges": list(judges),
                    "samples": _samples(record, judges),
                    "analysis": analysis[:ANALYSIS_LENGTH] + ("…" if is_long else ""),
                }
            )

    def _prompt(self, record: Mapping[str, Any]) -> int:
        key = prompt_key(record)
        if key not in self._number_of:
            self._number_of[key] = len(self.prompts)
            fields = ("source", "src_lang", "trg_lang", "reference")
            self.prompts.append({name: record[name] for name in fields})
        return self._number_of[key]


def _samples(record: Mapping[str, Any], judges: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Distinct samples in order, `n` of each; their numbers are those of the first."""
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for position, candidate in enumerate(record["candidates"]):
        key = tuple(candidate[name] for name in ("response", "translation", "score", "reward"))
        if key in distinct:
            distinct[key]["n"] += 1
            continue
        translation = candidate["translation"]
        distinct[key] = {
            "id": candidate["id"],
            "n": 1,
            "text": candidate["response"] if translation is None else translation,
            "parsed": translation is not None,
            "status": candidate["status"],
            "tokens": candidate["n_tokens"],
            "score": _rounded(candidate["score"]),
            "reward": _rounded(candidate["reward"]),
            "advantage": _rounded(candidate["advantage"]),
            "others": [_rounded(scores[position]) for scores in judges.values()],
        }
    return list(distinct.values())


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
