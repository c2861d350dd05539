"""A model card: what a run has recorded of its data, judge, settings and held-out scores, as a README.md of a hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from grrm.errors import UserError
from grrm.tracking.metrics_log import VERDICT_FILE, read_metrics
from grrm.tracking.report.facts import judge_of, without_machine
from grrm.tracking.rollout_dump import ROLLOUTS, last_arguments

_RECIPE = {
    "algorithm": "rl_algorithm",
    "advantage rule": "advantage_rule",
    "policy loss": "policy_loss",
    "learning rate": "learning_rate",
    "prompts per rollout": "global_batch_size",
    "samples per prompt": "rollout_n",
    "sampling temperature": "temperature",
    "tokens of a prompt, at most": "max_prompt_len",
    "tokens of a response, at most": "max_dec_len",
    "chat format": "chat_template",
    "LoRA rank": "lora_rank",
    "seed": "seed",
}
_FILES = {
    "started from": "actor_model_name_or_path",
    "training data": "train_datasets",
    "held-out data": "eval_datasets",
}
JUDGE_CARD = "card.json"
JUDGE_CARD_FORMAT = "grrm judge card 1"
_OF_JUDGES = {"acc_eq": "tie_calibrated_accuracy", "SPA": "soft_pairwise_accuracy", "scored": "coverage"}
_UNSAID: tuple[object, ...] = (None, "", "none", [])


def model_card(run: Path, name: str, licence: str | None = None, base_model: str | None = None) -> str:
    """The card of the policy in `run`, an output folder or one of its checkpoints, under the title `name`.

    What the run has not recorded is left out or said to be unknown; nothing is guessed. `licence` and `base_model` are
    names as a hub has them. A judge's card in the folder, as `grrm eval judge` writes it, becomes a table.

    Raises UserError for a card that is none, and for damaged metrics.
    """
    checkpoint = re.fullmatch(r"checkpoint-(\d+)", run.resolve().name)
    folder = run.resolve().parent if checkpoint else run
    settings = last_arguments(folder / ROLLOUTS)
    header: dict[str, Any] = {"license": licence, "base_model": base_model, "library_name": "transformers"}
    header |= {"pipeline_tag": "text-generation", "tags": ["translation", "paddle-grrm"]}
    front = yaml.safe_dump({key: value for key, value in header.items() if value}, sort_keys=False, allow_unicode=True)
    parts = [
        f"---\n{front}---\n\n# {name}",
        f"A translation policy trained with paddle-grrm {version('paddle-grrm')}"
        + (f": step {checkpoint[1]} of a run." if checkpoint else "."),
        "## Training",
        _table(("setting", "value"), _training(settings)) if settings else "The run has not recorded its settings.",
        "## Scores",
        _scores(read_metrics(folder), settings, int(checkpoint[1]) if checkpoint else None),
        *([] if checkpoint else _verdict(folder / VERDICT_FILE)),
        *_judge_card(folder / JUDGE_CARD),
        "## Licence",
        f"{licence}, as stated by who exported the model." if licence else "Not stated.",
    ]
    return "\n\n".join(parts) + "\n"


def _training(settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for title, key in _FILES.items():
        if settings.get(key) not in _UNSAID:
            yield title, without_machine(str(settings[key]))
    unnamed = "that of a reward server, whose name the run has not recorded"
    yield "judge", unnamed if settings.get("use_rm_server") else judge_of(settings) or "not recorded"
    for title, key in _RECIPE.items():
        if settings.get(key) not in _UNSAID and (key != "lora_rank" or settings.get("lora")):
            yield title, str(settings[key])


def _scores(metrics: list[dict[str, Any]], settings: Mapping[str, Any], step: int | None) -> str:
    """The evaluation of the exported weights: the last one up to their step, or the best where that was kept.

    That of step 0 is of the policy before training.
    """
    evaluations = [line for line in metrics if line["step"] and any(key.startswith("eval_") for key in line)]
    evaluations = [line for line in evaluations if step is None or line["step"] <= step]
    best = f"eval_{str(settings.get('metric_for_best_model')).removeprefix('eval_')}"
    if step is None and settings.get("load_best_model_at_end"):
        sign = 1 if settings.get("greater_is_better") else -1
        saves = settings.get("save_steps") or 1  # Trainer chooses among checkpoints, of equal ones the first
        saved = [line for line in reversed(evaluations) if line["step"] % saves == 0]
        ranked = [line for line in saved if isinstance(line.get(best), (int, float))]
        evaluations = sorted(ranked, key=lambda line: sign * line[best]) or evaluations
    if not evaluations:
        return "The run has recorded no evaluation."
    line = evaluations[-1]
    names = [key for key, value in line.items() if key.startswith("eval_") and isinstance(value, (int, float))]
    names = [key for key in names if not key.startswith("eval_alarm/")]
    bounds = {f"{name}{end}" for name in names for end in ("_low", "_high")}
    rows = [(f"`{key}`", f"{line[key]:.4g}", _interval(line, key)) for key in names if key not in bounds]
    intro = f"Held-out rows, after step {line['step']}. Names with `_greedy` are of greedy decoding."
    return f"{intro}\n\n{_table(('metric', 'value', '95 % interval'), rows)}"


def _verdict(path: Path) -> list[str]:
    """The changes by training, with intervals, if the run has come to a verdict."""
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        steps = f"steps {content['first_step']} to {content['last_step']}, {content['rows']} held-out rows"
        rows = [
            (f"`{name}`", f"{of['before']:.4g}", f"{of['after']:.4g}", f"{of['low']:+.3g} to {of['high']:+.3g}")
            for name, of in content["changes"].items()
        ]
        intro = f"Did training help? {content['verdict']}: {content['reason']} ({steps})."
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' holds no verdict ({error}): remove the file") from error
    return [intro, _table(("metric", "before", "after", "95 % interval of the change"), rows)]


def _judge_card(path: Path) -> list[str]:
    """The agreement of judges with people in each language pair, if the file is there."""
    if not path.is_file():
        return []
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        if card["format"] != JUDGE_CARD_FORMAT:
            raise ValueError(f"format {card['format']!r}")
        rows = [
            (
                *(str(row[key]) for key in ("language_pair", "name", "kind")),
                *(_shown(row[key]) for key in _OF_JUDGES.values()),
            )
            for row in card["rows"]
            if row["domain"] is None
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no judge's card; write it with `grrm eval judge --out`, or remove it") from error
    intro = "Agreement of judges with people: pairwise accuracy with calibrated ties, and soft accuracy of systems."
    return ["## Judges", f"{intro}\n\n{_table(('languages', 'judge', 'kind', *_OF_JUDGES), rows)}"]


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(line: Mapping[str, Any], key: str) -> str:
    low, high = (line.get(f"{key}{end}") for end in ("_low", "_high"))
    return "–" if low is None or high is None else f"{low:.4g} to {high:.4g}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in lines
    )
