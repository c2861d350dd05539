"""Writes the tables of benchmarks/results into README and docs; those of docs/benchmarks.md between two marks.

python benchmarks/page_tables.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import RESULTS, ROOT
from published import PUBLISHED

BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"
PAGE = ROOT / "docs/benchmarks.md"
MODELS = {"tiny": "Qwen2, 4 layers, 256 wide", "smol": "SmolLM2-135M"}
Rows = list[dict[str, Any]]


def main() -> None:
    from grrm.data.atomic import atomic_path

    for path in dict.fromkeys([PAGE, *(ROOT / table.page for table in PUBLISHED)]):
        text = with_results(path)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def with_results(path: Path) -> str:
    """The page with all of its tables as the results are now."""
    text = path.read_text(encoding="utf-8")
    for table in PUBLISHED:
        if ROOT / table.page == path:
            text = table.written(text)
    return with_tables(text) if path == PAGE else text


def with_tables(page: str) -> str:
    """The page with the tables as the results are now. Raises ValueError where the marks are missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{tables()}\n{END}{tail}"


def tables() -> str:
    """Markdown of what has been measured."""
    written = []
    for name, tables_of in TABLES.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
            written += [table(rows) for table in tables_of]
    return "\n\n".join(written)


def _decode(rows: Rows) -> str:
    cases = sorted(
        (row for row in rows if "samples" not in row),
        key=lambda row: (not row["engine"].startswith("ours"), row["engine"], row["batch"]),
    )
    corner = "tokens/s, {prompt} + {new} tokens"
    return _grid(cases, corner, "engine", "batch", lambda row: f"{row['tokens_per_s']:.0f}", "batch {}".format)


def _rollout(rows: Rows) -> str:
    heads = {"shared": "each prompt prefilled once", "apart": "for every sample"}
    cases = []
    for row in (row for row in rows if "samples" in row):
        engine, _, prefilled = row["engine"].rpartition("-")
        cases.append({**row, "engine": engine, "prefilled": prefilled})
    corner = "{batch} prompts of {prompt} tokens, {samples} samples each"
    return _grid(cases, corner, "engine", "prefilled", lambda row: f"{row['tokens_per_s']:.0f}", heads.__getitem__)


def _step(rows: Rows) -> str:
    def cell(row: dict[str, Any]) -> str:
        seconds = f"{row['seconds_per_step']:.2f}"
        times = f" ({1 / row['relative_to_trl']:.1f} times as fast as TRL)"
        return seconds + times if row["engine"].startswith("ours") else seconds

    return _grid(rows, "seconds a GRPO step", "engine", "model", cell, MODELS.__getitem__)


def _logprob(rows: Rows) -> str:
    def cell(row: dict[str, Any]) -> str:
        seconds, memory = f"{row['seconds']:.1f} s", f"{row['peak_mb']:.0f} MB"
        if row["engine"] == "torch":
            return f"{seconds}, {memory}"
        relative, of_memory = row["seconds_relative_to_torch"], row["peak_mb_relative_to_torch"]
        return f"{seconds} ({relative:.2f} of torch's), {memory} ({of_memory:.2f})"

    corner = "log-probability and entropy of {tokens} tokens, forward and backward: seconds, MB"
    return _grid(rows, corner, "engine", "model", cell)


def _ranker(rows: Rows) -> str:
    def cell(row: dict[str, Any]) -> str:
        seconds = f"{row['seconds_per_step']:.2f}"
        relative, cpu = row["relative_to_torch"], row["cpu_relative_to_torch"]
        return (
            seconds if row["engine"] == "torch" else f"{seconds} ({relative:.2f} of torch's; {cpu:.2f} in CPU seconds)"
        )

    heads = {"none": "each candidate by itself", "group": "candidates compared"}
    corner = "seconds a training step of the ranker, {groups} groups of {group_size}"
    return _grid(rows, corner, "engine", "compare", cell, heads.__getitem__)


def _judge(rows: Rows) -> str:
    def cell(row: dict[str, Any]) -> str:
        milliseconds = f"{row['milliseconds_per_group']:.0f}"
        times = f" (1/{1 / row['relative_to_gqm']:.1f} of the GQM's)"
        return milliseconds if row["engine"].startswith("gqm") else milliseconds + times

    corner = "milliseconds a judged group of {group_size}, SmolLM2-135M"
    return _grid(rows, corner, "engine", "batch", cell, "{} at once".format)


def _server(rows: Rows) -> str:
    def cell(row: dict[str, Any]) -> str:
        speed = f"{row['requests_per_s']:.0f} ({row['p99_ms']:.0f} ms)"
        return f"{speed}, {row['relative_to_flask']:.2f} of flask-waitress" if row["server"] == "ours" else speed

    labels = (f"{row['server']}, POST {row['path']} ({row['body_bytes'] / 1e3:.0f} kB)" for row in rows)
    labelled = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    labelled.sort(key=lambda row: row["connections"])
    corner = "reward requests/s (p99), {groups} groups of {samples} each"
    return _grid(labelled, corner, "label", "connections", cell, "{} at once".format)


def _grid(
    rows: Rows,
    corner: str,
    side: str,
    top: str,
    cell: Callable[[dict[str, Any]], str],
    head: Callable[[Any], str] = str,
) -> str:
    """A line for each `side` of the rows and a column for each `top`; `corner` names fields of theirs in braces."""
    lines, columns = (list(dict.fromkeys(row[key] for row in rows)) for key in (side, top))
    cells = {(row[side], row[top]): cell(row) for row in rows}
    table = [[corner.format(**rows[0]), *map(head, columns)], ["---"] * (1 + len(columns))]
    table += [[line, *(cells.get((line, column), "–") for column in columns)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


TABLES = {
    "decode": (_decode, _rollout),
    "grpo_step": (_step,),
    "logprob": (_logprob,),
    "ranker_step": (_ranker,),
    "judge_group": (_judge,),
    "server": (_server,),
}

if __name__ == "__main__":
    main()
