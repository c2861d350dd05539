"""Console output of a run: sample groups as a table, and progress with the remaining time.

On a terminal these are a rich table and a tqdm bar; anywhere else they are plain lines, few enough to read in a log.
Only rank 0 should show them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0
_LONGEST_SILENCE_S = 60.0
_LONGEST_TEXT = 400


def show_groups(records: Sequence[Mapping[str, Any]], *, max_groups: int) -> None:
    """Print the first `max_groups` records of `rollout_dump.group_record`: every candidate with its numbers.

    Text is shown as it is, never as markup or as control characters.
    """
    console = Console()
    for record in records[:max_groups]:
        if console.is_terminal:
            console.print(_table(record))
        else:
            for line in _plain_lines(record):
                console.print(line, markup=False, highlight=False, soft_wrap=True)


def format_seconds(seconds: float) -> str:
    """A duration for people: "42 s", "3 min 05 s", "2 h 07 min"."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def line_is_due(waited_s: float, n_steps: int, total: int | None) -> bool:
    """Return whether a log of progress gets a line `waited_s` seconds and `n_steps` of `total` steps after the last.

    At most every ten seconds: when another 10 % of the steps are done, or after a minute.
    """
    if waited_s < _SECONDS_BETWEEN_LINES:
        return False
    return waited_s >= _LONGEST_SILENCE_S or bool(total and n_steps * 10 >= total)


class StepProgress:
    """Progress over `total` steps of which `initial` were done by an earlier run.

    Off a terminal it prints a line at the first and the last step, and in between where `line_is_due`.
    """

    def __init__(self, total: int, *, initial: int = 0, description: str) -> None:
        self.total, self.initial, self.description = total, initial, description
        self._started_s = self._line_s = time.monotonic()
        self._line_step: int | None = None
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=initial, desc=description, file=sys.stderr, dynamic_ncols=True)

    def update(self, step: int, **shown: float | None) -> None:
        """`step` steps are done in all; `shown` are the few numbers to print beside them (None is left out)."""
        numbers = {key: f"{value:.4g}" for key, value in shown.items() if value is not None}
        if self._bar is not None:
            self._bar.set_postfix(numbers, refresh=False)
            self._bar.update(step - self._bar.n)
        elif self._is_due(step):
            self._line_step, self._line_s = step, time.monotonic()
            text = " ".join(f"{key} {value}" for key, value in numbers.items())
            line = f"{self.description}: step {step}/{self.total} {text}".rstrip()
            print(f"{line}{self._remaining(step)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it is and the cursor on a new line."""
        if self._bar is not None:
            self._bar.close()

    def _is_due(self, step: int) -> bool:
        if self._line_step is None or step >= self.total:
            return step != self._line_step
        return line_is_due(time.monotonic() - self._line_s, step - self._line_step, self.total)

    def _remaining(self, step: int) -> str:
        done = step - self.initial
        if done <= 0 or step >= self.total:
            return ""
        remaining_s = (time.monotonic() - self._started_s) / done * (self.total - step)
        return f", {format_seconds(remaining_s)} left"


def _table(record: Mapping[str, Any]) -> Table:
    title = Text(f"step {record['step']}  {_languages(record, ' → ', '  ')}{_clean(record['source'])}")
    reference = record["reference"]
    caption = Text("no reference" if reference is None else f"reference: {_clean(reference)}")
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for name in ("id", "translation", "status", "score", "reward", "advantage"):
        table.add_column(name, justify="left" if name in ("id", "translation", "status") else "right")
    for candidate in record["candidates"]:
        table.add_row(*(Text(cell) for cell in _cells(candidate)))
    return table


def _plain_lines(record: Mapping[str, Any]) -> list[str]:
    head = f"step {record['step']} {_languages(record, ' -> ', ': ')}{_clean(record['source'])}"
    reference = "none" if record["reference"] is None else _clean(record["reference"])
    lines = [head, f"  reference: {reference}"]
    for candidate in record["candidates"]:
        identifier, translation, status, score, reward, advantage = _cells(candidate)
        lines.append(f"  {identifier} [{status}] score {score} reward {reward} advantage {advantage}: {translation}")
    return lines


def _languages(record: Mapping[str, Any], arrow: str, end: str) -> str:
    """Nothing for a question or the prompt of a judge, which are not between two languages."""
    return f"{record['src_lang']}{arrow}{record['trg_lang']}{end}" if record["src_lang"] else ""


def _cells(candidate: Mapping[str, Any]) -> list[str]:
    translation = candidate["translation"]
    text = f"(no translation) {candidate['response']}" if translation is None else translation
    numbers = [_number(candidate[name]) for name in ("score", "reward", "advantage")]
    return [str(candidate["id"]), _clean(text), candidate["status"] or "not judged", *numbers]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def printable(text: str) -> str:
    """One line: control characters, which a terminal would obey, and line breaks become single spaces."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _clean(text: str) -> str:
    """One printable line; a long text, such as the prompt of a judge, is cut here and whole in the dump."""
    line = printable(text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT].rstrip()} …"
