"""The report of a run or several: one HTML file with results, curves and groups, which scripts in it make a page of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from grrm.data.atomic import check_writable, write_bytes
from grrm.errors import UserError
from grrm.tracking.metrics_log import FILE_NAME, VERDICT_FILE, read_metrics
from grrm.tracking.report.facts import held_out, metric_columns, run_facts, training_reward
from grrm.tracking.report.page import page_files, scripted_page
from grrm.tracking.report.selection import (
    ANALYSIS_LENGTH,
    GroupKey,
    PromptKey,
    Scores,
    Survey,
    choose,
    chosen_records,
    prompt_key,
    survey_run,
)
from grrm.tracking.rollout_dump import ROLLOUTS, last_arguments


class PageGroups:
    """Collects the groups of all runs of a page; `prompts` and `groups` are JSON-ready and refer to each other."""

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self._number_of: dict[PromptKey, int] = {}

    def add(self, number: int, run: Path, keys: set[GroupKey]) -> None:
        """Add these groups of the run with this number. Raises UserError on a damaged dump."""
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
            self.prompts.append(dict(zip(("source", "src_lang", "trg_lang", "reference"), key, strict=True)))
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


SCRIPTS = ("elements", "chrf", "differences", "charts", "results", "groups", "comparison", "page")
GROUP_BYTES = 3_800_000  # of all runs together: a page should stay below 5 MB


def write_report(runs: Sequence[Path], out: Path, groups: int = 2_000) -> None:
    """Write the page of these output folders to `out`, with at most `groups` groups of each.

    Raises UserError for a folder that holds no run, and for a damaged file.
    """
    check_writable(out)
    write_bytes(out, render(report_data(runs, groups)).encode("utf-8", "replace"))


def report_data(runs: Sequence[Path], groups: int) -> dict[str, Any]:
    """Return the content of the page, JSON-ready: facts, results and metrics of every run, prompts and groups.

    Raises as `write_report`.
    """
    names = _names(runs)
    for run in runs:
        if not (run / FILE_NAME).exists() and not (run / ROLLOUTS).is_dir():
            raise UserError(f"{run} has neither {FILE_NAME} nor {ROLLOUTS}/: name the output_dir of a training run")
    surveys = [survey_run(run) for run in runs]
    chosen = choose(surveys, groups, GROUP_BYTES // len(runs))
    page = PageGroups()
    for number, (run, keys) in enumerate(zip(runs, chosen, strict=True)):
        page.add(number, run, keys)
    settings = [last_arguments(run / ROLLOUTS) for run in runs]
    return {
        "runs": [_run(*columns) for columns in zip(runs, names, surveys, settings, strict=True)],
        "settings": _different_settings(settings),
        "prompts": page.prompts,
        "groups": page.groups,
    }


def render(data: Mapping[str, Any]) -> str:
    """Return the page. No address in it leads anywhere, and its policy allows its own script and style only."""
    licence = f"/* uPlot: {page_files('uplot/LICENSE')} */\n"  # it asks to be in every copy
    script = Markup(licence) + page_files("uplot/uPlot.iife.min.js", *(f"browser/{name}.js" for name in SCRIPTS))
    style = page_files("style.css", "uplot/uPlot.min.css", "browser/report.css")
    strings = json.loads(page_files("browser/strings.json"))
    title = ", ".join(run["name"] for run in data["runs"])
    return scripted_page(title, {**data, "strings": strings}, script, style)


def _run(run: Path, name: str, survey: Survey, settings: Mapping[str, Any]) -> dict[str, Any]:
    metrics, verdict = read_metrics(run), _verdict(run)
    return {
        "name": name,
        "facts": run_facts(metrics, settings),
        "held_out": held_out(metrics, verdict),
        "reward": training_reward(metrics),
        "verdict": verdict,
        "metrics": metric_columns(metrics) | survey.pair_rewards(),
        "n_groups": sum(survey.uses.values()),
        "uses": dict(survey.uses),
        "statuses": dict(survey.statuses.most_common()),
        "rejections": dict(survey.rejections.most_common()),
    }


def _verdict(run: Path) -> dict[str, Any] | None:
    path = run / VERDICT_FILE
    if not path.exists():
        return None
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): remove the file") from error
    return verdict if isinstance(verdict, dict) else None


def _names(runs: Sequence[Path]) -> list[str]:
    """The folders' last parts that tell them apart. Raises UserError for the same folder twice."""
    paths = [run.resolve() for run in runs]
    if len(set(paths)) != len(paths):
        raise UserError("a run is named twice: name each once")
    for depth in range(1, max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _different_settings(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Of several runs the settings in which they differ, of one all that are set; runs without rollouts keep none."""
    names = sorted({name for of_run in settings for name in of_run})
    rows = [(name, [of_run.get(name) for of_run in settings]) for name in names]
    if len(settings) == 1:
        return [(name, values) for name, values in rows if values[0] not in (None, "", [], {})]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]
