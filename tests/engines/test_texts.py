"""`grrm translate` and `grrm rank` over servers of real engines: the replies of the engine in this process, whatever
happens to the server.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engines.engine_servers import MODEL, EngineServer
from support.command_line import GRRM, grrm
from support.gguf_files import write_policy_gguf
from support.rl_processes import TinyWorld
from support.rows import write_jsonl

KINDS = ["grrm", "vllm", "llama_cpp"]
N_ROWS = 24
CANDIDATES = ["hello", "good day", "see you later", "good evening"]  # as many as the judges of make real read
LIMITS = ["--max-new-tokens", "24", "--retry", "0"]
# What is asked of a model: a command, its options, and the column of the replies.
WORK = {
    "translate": ("translate", ("--prompt-type", "Tower"), "raw_output"),
    "gqm": ("rank", ("--judge", "gqm"), "judge_response"),
    "sqm": ("rank", ("--judge", "sqm"), "judge_response"),
}
CUT_SHOWN = "\N{REPLACEMENT CHARACTER}"
# The rest of a character that the limit cut, which servers leave out; several replies of a row are numbered.
CUT = re.compile(rf"{CUT_SHOWN}+(?=\n\n\[[1-3]\]\n|\Z)")


class Served:
    """A model as an engine loads it, and the `folder` from which it is loaded in this process."""

    def __init__(self, kind: str, world: TinyWorld, exported: Path) -> None:
        self.kind, self.folder, self.model = kind, world.policy, exported if kind == "vllm" else world.policy
        if kind == "llama_cpp":
            from grrm.models.gguf_import import import_gguf

            self.model = world.policy.with_name(f"{world.policy.name}.gguf")
            self.folder = world.policy.with_name(f"{world.policy.name}-of-gguf")
            if not self.folder.exists():
                write_policy_gguf(exported, self.model)
                import_gguf(self.model, self.folder)


@pytest.fixture(scope="session", params=KINDS)
def served(request: pytest.FixtureRequest, policy_world: TinyWorld, exported: Path) -> Served:
    return Served(request.param, policy_world, exported)


@pytest.fixture(scope="session")
def server(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """A server that every test leaves ready for the next one."""
    one = EngineServer(served.kind, served.model, tmp_path_factory.mktemp(served.kind) / "log")
    yield one
    one.kill()


@pytest.fixture(scope="session")
def busy_server(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """A server that works on two requests at a time."""
    options = {"grrm": ["--max-in-flight", "2"], "vllm": ["--max-num-seqs", "2"], "llama_cpp": []}[served.kind]
    one = EngineServer(served.kind, served.model, tmp_path_factory.mktemp(served.kind) / "log", *options)
    yield one
    one.kill()


@pytest.fixture(scope="session")
def rows(world: TinyWorld) -> Path:
    """Sources, each with candidates to be judged."""
    sources = [json.loads(json.loads(line)["tgt"]) for line in world.rl_data.read_text().splitlines()[:N_ROWS]]
    path = world.folder / "sources.jsonl"
    lines = [
        {"src_text": one["source"], "src_lang": one["src_lang"], "trg_lang": one["trg_lang"], "mt_texts": CANDIDATES}
        for one in sources
    ]
    return write_jsonl(path, lines)


def replies(done: subprocess.CompletedProcess[str], column: str) -> list[Any]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line)[column] for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Work:
    """A command that asks a model for replies to the rows of a file."""

    rows: Path
    name: str
    options: tuple[str, ...]
    column: str

    def words(self, *where: object) -> list[object]:
        return [self.name, self.rows, *where, *self.options, *LIMITS]

    def replies(self, *where: object) -> list[Any]:
        return replies(grrm(*self.words(*where)), self.column)


@functools.cache
def in_process(work: Work, folder: Path) -> list[Any]:
    """The replies of the engine in this process, which several tests compare with."""
    return work.replies("--model", folder)


@pytest.fixture(params=WORK)
def work(request: pytest.FixtureRequest, rows: Path) -> Work:
    return Work(rows, *WORK[request.param])


def at(server: EngineServer) -> list[str]:
    return ["--url", server.url, "--model", MODEL]


def check(served: Served, texts: list[str], expected: list[str]) -> None:
    """All replies are there, and equal: with llama.cpp most of them, by how they begin.

    It leaves out bytes that are no character and rounds more coarsely, which a random model's close calls show.
    """
    assert len(texts) == N_ROWS
    assert all(expected)
    if served.kind == "llama_cpp":
        pairs = zip(map(beginning, texts), map(beginning, expected), strict=True)
        assert sum(text == other for text, other in pairs) > 0.75 * N_ROWS
    else:
        assert texts == [CUT.sub("", text) for text in expected]


def beginning(text: str) -> str:
    return text.replace(CUT_SHOWN, "")[:8]


def test_replies_are_those_of_the_engine_in_this_process(served: Served, server: EngineServer, work: Work) -> None:
    check(served, work.replies(*at(server)), in_process(work, served.folder))


def test_another_model_is_refused_with_a_sentence(served: Served, server: EngineServer, work: Work) -> None:
    if served.kind == "llama_cpp":
        pytest.skip("it serves its model under any name")
    done = grrm(*work.words("--url", server.url, "--model", "other"))
    assert done.returncode == 2
    assert "other" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_killed_and_comes_back_is_waited_for(served: Served, server: EngineServer, work: Work) -> None:
    expected, n_before = in_process(work, served.folder), server.n_completions()
    words = [*GRRM, *map(str, work.words(*at(server))), "--batch-rows", "4"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    gives_up = time.monotonic() + 120
    while server.n_completions() < n_before + 6 and command.poll() is None and time.monotonic() < gives_up:
        time.sleep(0.01)
    server.kill()
    is_finished = command.poll() is not None
    server.start()
    said, errors = command.communicate(timeout=600)
    done = subprocess.CompletedProcess(words, command.returncode, said, errors)
    check(served, replies(done, work.column), expected)
    assert not is_finished, "it was finished before the server was killed"


def test_a_busy_server_is_waited_for(served: Served, busy_server: EngineServer, work: Work) -> None:
    expected = in_process(work, served.folder)
    outcomes: list[list[Any]] = []
    threads = [threading.Thread(target=lambda: outcomes.append(work.replies(*at(busy_server)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2
    for outcome in outcomes:
        check(served, outcome, expected)


@pytest.mark.parametrize("served", ["vllm"], indirect=True)
def test_a_paused_server_ends_a_command_at_its_deadline(served: Served, server: EngineServer, work: Work) -> None:
    server.ask("/pause?mode=abort", b"")
    done = grrm(*work.words(*at(server)), "--deadline", "15")
    server.ask("/resume", b"")
    assert done.returncode == 2
    assert "no answer came in time (the deadline of 15 s" in done.stderr
    assert "Traceback" not in done.stderr
    check(served, work.replies(*at(server)), in_process(work, served.folder))


@pytest.mark.skipif("GRRM_JUDGE" not in os.environ, reason="GRRM_JUDGE names no folder of a trained judge")
@pytest.mark.parametrize("kind", ["vllm", "grrm"])
def test_a_trained_judge_scores_as_in_this_process(
    kind: str, start: Callable[..., EngineServer], rows: Path, tmp_path: Path
) -> None:
    folder = Path(os.environ["GRRM_JUDGE"])
    from grrm.models.export import export_policy

    if kind == "vllm":
        export_policy(folder, tmp_path / "judge")
    one = start(kind, tmp_path / "judge" if kind == "vllm" else folder)
    options = ["--judge", "gqm", "--judge-option", "prompt_type=score", "--max-new-tokens", "96", "--retry", "0"]
    remote, local = (
        replies(grrm("rank", rows, *where, *options), "judge_scores")
        for where in (at(one), ["--model", folder, "--dtype", "float32"])
    )
    assert sum(score is not None for row in local for score in row) > N_ROWS
    assert remote == local
