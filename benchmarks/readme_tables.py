"""Writes the tables of benchmarks/results into README.md and README_zh.md, between the lines that mark their place.

python benchmarks/readme_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"
READMES = {"README.md": "en", "README_zh.md": "zh"}
WORDS = {
    "en": {
        "decode": "tokens/s, {prompt} + {new} tokens",
        "batch": "batch {batch}",
        "rollout": "{batch} prompts of {prompt} tokens, {samples} samples each",
        "shared": "each prompt prefilled once",
        "apart": "for every sample",
        "step": "seconds a GRPO step",
        "tiny": "Qwen2, 4 layers, 256 wide",
        "smol": "SmolLM2-135M",
        "relative": "{seconds:.2f} ({times:.1f} times as fast as TRL)",
        "logprob": "log-probability and entropy of {tokens} tokens, forth and back: seconds, MB",
        "cost": "{seconds:.1f} s, {peak_mb:.0f} MB",
        "compared": "{seconds:.1f} s ({time:.2f} of torch's), {peak_mb:.0f} MB ({memory:.2f})",
        "server": "reward requests/s (p99), {groups} groups of {samples} each",
        "at_once": "{connections} at once",
        "served": "{requests_per_s:.0f} ({p99_ms:.0f} ms)",
        "served_beside": "{requests_per_s:.0f} ({p99_ms:.0f} ms), {relative_to_flask:.2f} of flask-waitress",
    },
    "zh": {
        "decode": "每秒 token 数，{prompt} + {new} 个 token",
        "batch": "批大小 {batch}",
        "rollout": "{batch} 条 {prompt} 个 token 的提示，各 {samples} 个样本",
        "shared": "每条提示只预填充一次",
        "apart": "每个样本都预填充",
        "step": "每个 GRPO 步的秒数",
        "tiny": "Qwen2，4 层，宽 256",
        "smol": "SmolLM2-135M",
        "relative": "{seconds:.2f}（TRL 的 {times:.1f} 倍速度）",
        "logprob": "{tokens} 个 token 的对数概率与熵，前向加反向：秒数、MB",
        "cost": "{seconds:.1f} 秒，{peak_mb:.0f} MB",
        "compared": "{seconds:.1f} 秒（torch 的 {time:.2f}），{peak_mb:.0f} MB（{memory:.2f}）",
        "server": "每秒奖励请求数（p99），每个请求 {groups} 组，每组 {samples} 个样本",
        "at_once": "{connections} 个并发连接",
        "served": "{requests_per_s:.0f}（{p99_ms:.0f} 毫秒）",
        "served_beside": "{requests_per_s:.0f}（{p99_ms:.0f} 毫秒），flask-waitress 的 {relative_to_flask:.2f}",
    },
}


def main() -> None:
    from grrm.data.atomic import atomic_path

    for name, language in READMES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        with atomic_path(ROOT / name) as temporary:
            temporary.write_text(with_tables(text, language), encoding="utf-8")


def with_tables(readme: str, language: str) -> str:
    """The README with the tables as the results are now. Raises ValueError where the marks are missing."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{tables(language)}\n{END}{tail}"


def tables(language: str) -> str:
    """Markdown of what has been measured."""
    words = WORDS[language]
    made = []
    for name, tables_of in TABLES.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
            made += [table(rows, words) for table in tables_of]
    return "\n\n".join(made)


def _decode(rows: list[dict[str, Any]], words: dict[str, str]) -> str:
    cases = [row for row in rows if "samples" not in row]
    batches = sorted({row["batch"] for row in cases})
    speeds = {(row["engine"], row["batch"]): row["tokens_per_s"] for row in cases}
    head = [words["decode"].format(**cases[0]), *(words["batch"].format(batch=batch) for batch in batches)]
    engines = sorted({row["engine"] for row in cases}, key=lambda engine: (not engine.startswith("ours"), engine))
    return _table(head, [[engine, *(f"{speeds[engine, batch]:.0f}" for batch in batches)] for engine in engines])


def _rollout(rows: list[dict[str, Any]], words: dict[str, str]) -> str:
    cases = {row["engine"]: row for row in rows if "samples" in row}
    head = [words["rollout"].format(**next(iter(cases.values()))), words["shared"], words["apart"]]
    engines = dict.fromkeys(name.rpartition("-")[0] for name in cases)
    columns = ("shared", "apart")

    def speed(engine: str) -> str:
        return f"{cases[engine]['tokens_per_s']:.0f}" if engine in cases else "–"

    return _table(head, [[name, *(speed(f"{name}-{how}") for how in columns)] for name in engines])


def _step(rows: list[dict[str, Any]], words: dict[str, str]) -> str:
    models, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "engine"))
    found = {}
    for row in rows:
        form = words["relative"] if row["engine"].startswith("ours") else "{seconds:.2f}"
        times = 1 / row["relative_to_trl"]
        found[row["engine"], row["model"]] = form.format(seconds=row["seconds_per_step"], times=times)
    head = [words["step"], *(words[model] for model in models)]
    return _table(head, [[engine, *(found[engine, model] for model in models)] for engine in engines])


def _logprob(rows: list[dict[str, Any]], words: dict[str, str]) -> str:
    models, engines = (list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "engine"))
    found = {}
    for row in rows:
        relative = {"time": row["seconds_relative_to_torch"], "memory": row["peak_mb_relative_to_torch"]}
        form = words["cost" if row["engine"] == "torch" else "compared"]
        found[row["engine"], row["model"]] = form.format(**row, **relative)
    head = [words["logprob"].format(**rows[0]), *(f"{model}" for model in models)]
    return _table(head, [[engine, *(found[engine, model] for model in models)] for engine in engines])


def _server(rows: list[dict[str, Any]], words: dict[str, str]) -> str:
    found = {}
    for row in rows:
        label = f"{row['server']}, POST {row['path']} ({row['body_bytes'] / 1e3:.0f} kB)"
        form = words["served_beside" if row["server"] == "ours" else "served"]
        found.setdefault(label, {})[row["connections"]] = form.format(**row)
    connections = sorted({row["connections"] for row in rows})
    head = [words["server"].format(**rows[0]), *(words["at_once"].format(connections=number) for number in connections)]
    return _table(head, [[label, *(of_label[number] for number in connections)] for label, of_label in found.items()])


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES = {"decode": (_decode, _rollout), "grpo_step": (_step,), "logprob": (_logprob,), "server": (_server,)}

if __name__ == "__main__":
    main()
