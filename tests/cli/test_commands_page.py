"""The commands of docs/commands.md, run as they stand there, on small data and with servers for the models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recipe.documented import commands_of
from support.completions_server import CompletionsServer
from support.metric_environments import BLEURT, install, make_environment

PAGE_PATH = Path(__file__).parents[2] / "docs" / "commands.md"
PAGE = PAGE_PATH.read_text(encoding="utf-8")
RUNNABLE = [block for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if "llm/alignment" not in block]
WORDS = ["one", "two", "three", "four", "five", "six"]


def pairs():
    for number, word in enumerate(WORDS):
        german, english = f"Zahl {number}", f"number {word}"
        yield {"src_text": german, "trg_text": english, "src_lang": "de", "trg_lang": "en", "response": "```x```"}
        yield {"src_text": english, "trg_text": german, "src_lang": "en", "trg_lang": "de", "response": "```x```"}


def write_downloads(folder: Path) -> None:
    groups = [
        {**row, "mt_texts": ["a", row["trg_text"], "b"], "scores": [2, 9, 4], "analysis": "One is right."}
        for row in pairs()
    ]
    answers = [
        {
            "data_source": "polaris_tinyv",
            "prompt": [{"role": "user", "content": f"{n} + 1?"}],
            "reward_model": {"ground_truth": str(n + 1)},
            "extra_info": {"question": f"{n} + 1?", "criteria": "10 for the sum"},
        }
        for n in range(4)
    ]
    tables = {
        "TowerBlocks-MT-Ranking/train": groups,
        "TowerBlocks-MT-Ranking/test": groups,
        "TowerBlocks-MT-CoT-ZhEn/train": list(pairs()),
        "TowerBlocks-MT/data/train": list(pairs()),
        "polaris/train_polaris": answers,
    }
    for name, rows in tables.items():
        path = folder / "downloads" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    puzzle = {"quiz": "Who?", "solution_text_format": "(1) Zoey is a knight"}
    path = folder / "downloads/knights-and-knaves/train/people3_num1000.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(puzzle) + "\n", encoding="utf-8")


def reply(body, number):
    """A verdict, a translation in a code block, or a sample; the second of four is the reference now and then."""
    prompt = body["prompt"]
    if "Translation A" in prompt:
        return "Fine.\n\n### Final Ranking:\n\nA > B\n\n### Scores:\n\nA: 8, B: 3"
    if "code block" in prompt:
        return "Well.\n```\nL'herbe\n```"
    source = prompt.split(": ")[1].split("\n")[0]
    number_of = source.split()[-1]
    right = f"number {WORDS[int(number_of)]}" if number_of.isdigit() else f"Zahl {WORDS.index(number_of)}"
    return (right, "x", "y", "z")[number % 4]


@pytest.mark.slow
@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: " ".join(block.split()[:3]))
def test_commands_of_the_page_run(block, tmp_path):
    write_downloads(tmp_path)
    with CompletionsServer(reply) as server:
        environment = make_environment(tmp_path)
        install(environment, bleurt="", bleurt_score=BLEURT)
        for there, here in (
            ("--model path/to/eax_sft", f"--url {server.url}"),
            ("--model double7/GRRM-Qwen2.5-7B", f"--url {server.url}"),
            ("--model double7/Qwen2.5-7B-MT-GRRM-Optimized", f"--url {server.url}"),
            ("--judge bleurt", f"--judge bleurt --scorer-env '{environment}'"),
            ("--valid-score-range 2,9.5", "--valid-score-range 0,10"),  # the stand-in gives 0 and 10
        ):
            block = block.replace(there, here)
        script = f'set -e\ngrrm() {{ "{sys.executable}" -m grrm.cli "$@"; }}\n{block}'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    made = [word for word in re.findall(r"[\w.]+\.(?:jsonl|parquet)\b", block) if (tmp_path / word).is_file()]
    assert made
    assert all((tmp_path / name).stat().st_size for name in made)


# What needs GPUs, or is a whole run of its own: the argument file, and the test that has it.
RUN_ELSEWHERE = {
    "polaris.yaml": "tests/rl/test_routes_run.py",
    "reinforce_plus_plus_grrm_argument.yaml": "tests/config/test_shipped_configs.py",
    "grpo_argument.yaml": "tests/rewards/test_knights_and_knaves.py",
}


def argument_file(command):
    return next(Path(word).name for word in command.words if word.endswith(".yaml"))


def test_training_commands_are_those_of_pages_that_are_run_line_by_line():
    docs = PAGE_PATH.parent
    of_page, of_others = (
        {argument_file(one) for path in paths for one in commands_of(path) if "llm/alignment" in one.text}
        for paths in ((PAGE_PATH,), [docs / f"{name}.md" for name in ("recipe", "eax", "answers")])
    )
    assert of_page - of_others == set(RUN_ELSEWHERE)
    for name, test in RUN_ELSEWHERE.items():
        said = (docs.parent / test).read_text(encoding="utf-8")
        assert name in said or "commands.md" in said


def test_every_document_has_commands_that_are_run():
    assert len(RUNNABLE) == 7
