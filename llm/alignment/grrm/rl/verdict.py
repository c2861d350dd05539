"""The evaluations of a run as files of its folder, and the verdict that its end draws from the first and the last."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grrm.data.atomic import atomic_path, write_json
from grrm.errors import UserError
from grrm.evaluation.held_out_scores import TranslatedPrompt
from grrm.evaluation.verdict import Verdict, verdict_of
from grrm.gqm.groups import TranslationTask
from grrm.tracking.metrics_log import VERDICT_FILE, read_metrics
from grrm.tracking.report.selection import FOLDER as REJUDGED

EVALUATIONS = "held_out"  # the folder
TASK_FIELDS = ("source", "src_lang", "trg_lang", "reference")
OUTPUT_FIELDS = ("translations", "rewards", "lengths")


def write_evaluation(output_dir: str | Path, step: int, prompts: Sequence[TranslatedPrompt]) -> None:
    """Every held-out row with its responses, translations, rewards and lengths after `step`, a JSON line each."""
    with atomic_path(_file(output_dir, step)) as temporary, temporary.open("w", encoding="utf-8") as file:
        for prompt in prompts:
            task = {name: getattr(prompt.task, name) for name in (*TASK_FIELDS, "data_source")}
            outputs = {name: getattr(prompt, name) for name in (*OUTPUT_FIELDS, "responses")}
            file.write(json.dumps({**task, **outputs}, ensure_ascii=False) + "\n")


def read_evaluation(output_dir: str | Path, step: int) -> list[TranslatedPrompt] | None:
    """Read the file of `write_evaluation`; None if there is none. Raises UserError for a damaged one."""
    path = _file(output_dir, step)
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8") as file:  # not `splitlines`, which cuts at U+2028 in a response as well
            return [_prompt(json.loads(line)) for line in file]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"'{path}' is damaged ({error}): remove it; the run then ends without a verdict") from error


def conclude(output_dir: str | Path, last_step: int, *, has_greedy: bool, translates: bool) -> list[str]:
    """Write verdict.json from the evaluations of step 0 and of `last_step`; returns the lines for the console.

    Without both, or where they do not belong together, there is no verdict and one line that says why. A policy that
    does not translate, but judges or answers, has no references: its rows have the ground truth of a rule.
    """
    before, after = (read_evaluation(output_dir, step) for step in (0, last_step))
    if before is None or after is None or last_step == 0:
        missing = "before the first step" if before is None else f"after step {last_step}"
        return [
            f"no verdict: there was no evaluation {missing} (eval_on_start)",
            *verdict_lines(output_dir, translates),
        ]
    kls = [line["kl"] for line in read_metrics(Path(output_dir)) if line["step"] <= last_step and "kl" in line]
    try:
        verdict = verdict_of(
            before,
            after,
            steps=(0, last_step),
            has_greedy=has_greedy,
            has_references=translates,
            kl=kls[-1] if kls else None,
        )
    except ValueError as error:
        between = f"before the first step and after step {last_step}"
        return [f"no verdict: {error} {between}", *verdict_lines(output_dir, translates)]
    content = {**verdict.to_json(), "model": str(output_dir), "next": next_commands(output_dir, translates)}
    write_json(Path(output_dir) / VERDICT_FILE, content, indent=2)
    return verdict_lines(output_dir, translates)


def forget_verdict(output_dir: str | Path, *, is_resumed: bool) -> None:
    """Remove the verdict in `output_dir`; unless that run `is_resumed`, its evaluations and rejudged groups as well."""
    names = [VERDICT_FILE, *([] if is_resumed else [f"{EVALUATIONS}/step*.jsonl", f"{REJUDGED}/*.jsonl"])]
    for name in names:
        for path in Path(output_dir).glob(name):
            path.unlink()


def verdict_lines(output_dir: str | Path, translates: bool) -> list[str]:
    """The verdict of a finished run, its model and what to do next; without a verdict the latter only.

    Raises UserError for a damaged verdict.json.
    """
    path, lines = Path(output_dir) / VERDICT_FILE, []
    try:
        lines = Verdict.from_json(json.loads(path.read_text(encoding="utf-8"))).lines()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' holds no verdict ({error}): remove the file") from error
    return [
        *lines,
        f"the trained policy is in {output_dir}; next:",
        *(f"  {command}" for command in next_commands(output_dir, translates)),
    ]


def next_commands(output_dir: str | Path, translates: bool) -> list[str]:
    """Commands for a trained policy, which `translates` or has been trained to judge or to answer."""
    folder = shlex.quote(str(output_dir))
    return [*([f"grrm translate ROWS --model {folder}"] if translates else []), f"grrm report {folder}"]


def _file(output_dir: str | Path, step: int) -> Path:
    return Path(output_dir) / EVALUATIONS / f"step{step:06d}.jsonl"


def _prompt(row: dict[str, Any]) -> TranslatedPrompt:
    task = TranslationTask(*(row[name] for name in TASK_FIELDS))
    return TranslatedPrompt(task, *(tuple(row[name]) for name in OUTPUT_FIELDS))
