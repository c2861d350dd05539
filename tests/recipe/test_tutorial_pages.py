"""The tutorials, command by command and block by block, each on what the earlier ones left; training is shortened."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from recipe.documented import commands_of, give, run, start_server

DOCS = Path(__file__).parents[2] / "docs"
LAPTOP, JUDGE = DOCS / "tutorial_laptop.md", DOCS / "tutorial_judge.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PHRASES = re.compile(r"`(grrm data corpus phrases [^`]+)`")
MAX_COMMANDS = 8
SHORT = {"grrm sft": {"max_steps": 4, "save_steps": 4}, "grrm rl": {"max_steps": 2, "save_steps": 2}}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def workplace(tmp_path):
    subprocess.run([sys.executable, "-m", "grrm.cli", "init", tmp_path], check=True, capture_output=True)
    return tmp_path


def run_python(page: Path, folder: Path) -> str:
    (block,) = PYTHON.findall(page.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_commands(page: Path, folder: Path) -> int:
    """Run the page's commands with its server on a free port; the number of commands."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    servers, failures, commands = [], [], commands_of(page)
    try:
        for command in commands:
            words = [re.sub(r"\b87\d\d\b", port, word) for word in command.words]
            head = " ".join(words[:2])
            words = give(**SHORT.get(head, {}))(words)
            if head == "grrm rl":
                words = give(reward_server=f"http://127.0.0.1:{port}")(words)
            if command.is_background:
                server, problems = start_server(folder, words)
                servers.append(server)
            elif words[0] == "printf":
                problems = run(folder, ["bash", "-c", command.text])
            else:
                problems = run(folder, words)
            failures += problems
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        statuses = [server.wait(timeout=120) for server in servers]
    assert not failures, "\n".join(failures)
    assert statuses == [0] * len(servers)
    return len(commands)


def test_a_csv_file_with_tags_of_regions_leads_to_a_verdict_in_eight_commands(workplace):
    (corpus,) = PHRASES.findall(LAPTOP.read_text(encoding="utf-8"))
    assert not run(workplace, give(train_rows=1200)(corpus.split()))
    run_python(LAPTOP, workplace)
    assert "pt_BR" in (workplace / "mine.csv").read_text(encoding="utf-8")
    assert run_commands(LAPTOP, workplace) <= MAX_COMMANDS
    verdict = json.loads((workplace / "runs/mine/grpo/verdict.json").read_text(encoding="utf-8"))
    assert verdict["verdict"] in ("helped", "did not help", "cannot tell")
    assert verdict["rows"] == 200
    assert len((workplace / "runs/mine/translated.jsonl").read_text(encoding="utf-8").splitlines()) == 200
    prompts = (workplace / "runs/mine/data/rl.jsonl").read_text(encoding="utf-8")
    assert "into Brazilian Portuguese" in prompts
    assert "into Chinese" in prompts
    assert "pt_BR" not in "".join(json.loads(line)["src"] for line in prompts.splitlines())


def test_a_file_is_judged_by_a_server_by_a_command_and_from_python(workplace):
    run_commands(JUDGE, workplace)
    (ranked,) = (workplace / "ranked.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(json.loads(ranked)["judge_scores"]) == 3
    assert run_python(JUDGE, workplace).startswith("[[")
