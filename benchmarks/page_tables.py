"""Writes the tables of benchmarks/results into README and docs; those of docs/benchmarks.md between two marks.

python benchmarks/page_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from published import PUBLISHED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"
PAGE = ROOT / "docs/benchmarks.md"
WORDS = {
    "decode": "tokens/s, {prompt} + {new} tokens",
    "batch": "batch {batch}",
    "rollout": "{batch} prompts of {prompt} tokens, {samples} samples each",
    "shared": "each prompt prefilled once",
    "apart": "for every sample",
    "step": "seconds a GRPO step",
    "tiny": "Qwen2, 4 layers, 256 wide",
    "smol": "SmolLM2-135M",
    "relative": "{seconds:.2f} ({times:.1f} times as fast as TRL)",
    "logprob": "log-probability and entropy of {tokens} tokens, forward and backward: seconds, MB",
    "cost": "{seconds:.1f} s, {peak_mb:.0f} MB",
    "compared": "{seconds:.1f} s ({time:.2f} of torch's), {peak_mb:.0f} MB ({memory:.2f})",
    "ranker": "seconds a training step of the ranker, {groups} groups of {group_size}",
    "none": "each candidate by itself",
    "group": "candidates compared",
    "torch": "{seconds_per_step:.2f}",
    "ours": "{seconds_per_step:.2f} ({relative_to_torch:.2f} of torch's; {cpu_relative_to_torch:.2f} in CPU seconds)",
    "judge": "milliseconds a judged group of {group_size}, SmolLM2-135M",
    "groups_at_once": "{batch} at once",
    "judged": "{milliseconds_per_group:.0f}",
    "judged_beside": "{milliseconds_per_group:.0f} (1/{times:.1f} of the GQM's)",
    "server": "reward requests/s (p99), {groups} groups of {samples} each",
    "at_once": "{connections} at once",
    "served": "{requests_per_s:.0f} ({p99_ms:.0f} ms)",
    "served_beside": "{requests_per_s:.0f} ({p99_ms:.0f} ms), {relative_to_flask:.2f} of flask-waitress",
}


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


def _decode(rows: list[dict[str, Any]]) -> str:
    cases = [row for row in rows if "samples" not in row]
    batches = sorted({row["batch"] for row in cases})
    speeds = {(row["engine"], row["batch"]): row["tokens_per_s"] for row in cases}
    head = [WORDS["decode"].format(**cases[0]), *(WORDS["batch"].format(batch=batch) for batch in batches)]
    engines = sorted({row["engine"] for row in cases}, key=lambda engine: (not engine.startswith("ours"), engine))
    return _table(head, [[engine, *(f"{speeds[engine, batch]:.0f}" for batch in batches)] for engine in engines])


def _rollout(rows: list[dict[str, Any]]) -> str:
    cases = {row["engine"]: row for row in rows if "samples" in row}
    head = [WORDS["rollout"].format(**next(iter(cases.values()))), WORDS["shared"], WORDS["apart"]]
    engines = dict.fromkeys(name.rpartition("-")[0] for name in cases)
    columns = ("shared", "apart")

    def speed(engine: str) -> str:
        return f"{cases[engine]['tokens_per_s']:.0f}" if engine in cases else "–"

    return _table(head, [[name, *(speed(f"{name}-{how}") for how in columns)] for name in engines])


def _step(rows: list[dict[str, Any]]) -> str:
    models, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "engine"))
    cells = {}
    for row in rows:
        form = WORDS["relative"] if row["engine"].startswith("ours") else "{seconds:.2f}"
        times = 1 / row["relative_to_trl"]
        cells[row["engine"], row["model"]] = form.format(seconds=row["seconds_per_step"], times=times)
    head = [WORDS["step"], *(WORDS[model] for model in models)]
    return _table(head, [[engine, *(cells[engine, model] for model in models)] for engine in engines])


def _logprob(rows: list[dict[str, Any]]) -> str:
    models, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "engine"))
    cells = {}
    for row in rows:
        relative = {"time": row["seconds_relative_to_torch"], "memory": row["peak_mb_relative_to_torch"]}
        form = WORDS["cost" if row["engine"] == "torch" else "compared"]
        cells[row["engine"], row["model"]] = form.format(**row, **relative)
    head = [WORDS["logprob"].format(**rows[0]), *(f"{model}" for model in models)]
    return _table(head, [[engine, *(cells[engine, model] for model in models)] for engine in engines])


def _ranker(rows: list[dict[str, Any]]) -> str:
    forms, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("compare", "engine"))
    cells = {(row["engine"], row["compare"]): WORDS[row["engine"]].format(**row) for row in rows}
    head = [WORDS["ranker"].format(**rows[0]), *(WORDS[form] for form in forms)]
    return _table(head, [[engine, *(cells[engine, form] for form in forms)] for engine in engines])


def _judge(rows: list[dict[str, Any]]) -> str:
    batches, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("batch", "engine"))
    cells = {}
    for row in rows:
        form = WORDS["judged" if row["engine"].startswith("gqm") else "judged_beside"]
        cells[row["engine"], row["batch"]] = form.format(**row, times=1 / row["relative_to_gqm"])
    head = [WORDS["judge"].format(**rows[0]), *(WORDS["groups_at_once"].format(batch=batch) for batch in batches)]
    return _table(head, [[engine, *(cells[engine, batch] for batch in batches)] for engine in engines])


def _server(rows: list[dict[str, Any]]) -> str:
    cells = {}
    for row in rows:
        label = f"{row['server']}, POST {row['path']} ({row['body_bytes'] / 1e3:.0f} kB)"
        form = WORDS["served_beside" if row["server"] == "ours" else "served"]
        cells.setdefault(label, {})[row["connections"]] = form.format(**row)
    connections = sorted({row["connections"] for row in rows})
    head = [WORDS["server"].format(**rows[0]), *(WORDS["at_once"].format(connections=number) for number in connections)]
    return _table(head, [[label, *(of_label[number] for number in connections)] for label, of_label in cells.items()])


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
