"""The commands of a page, and what becomes of each where there is neither a GPU nor a network nor a large model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.rl_processes import environment

EXECUTED, SUBSTITUTED, CHECKED = "executed", "executed with substitutions", "syntax-checked only"
_FENCE = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Command:
    """A command line of a page: `text` as it stands there, `words` without its variables and its `&`."""

    text: str
    words: tuple[str, ...]
    is_background: bool

    def starts(self, *heads: str) -> bool:
        """Whether it starts with the words of one of the heads."""
        return any(list(self.words[: len(head.split())]) == head.split() for head in heads)


def commands_of(page: Path) -> list[Command]:
    """The commands of a page's shell blocks, in order; a line that ends in a backslash goes on in the next.

    A loop, and the waiting for what it started, is one command of two words, `for` and all of its text.
    """
    blocks = _FENCE.findall(page.read_text(encoding="utf-8"))
    text = "".join(blocks).replace("\\\n", " ")
    parts = re.findall(r"^for (?:.|\n)*?^done$(?:\nwait$)?|^.+$", text, re.MULTILINE)
    return [_command(part) for part in parts if part.strip() and not part.lstrip().startswith("#")]


def _command(line: str) -> Command:
    if line.startswith("for "):
        return Command(" ".join(line.split()), ("for", line), False)
    words = shlex.split(line)
    is_background = words[-1] == "&"
    words = words[:-1] if is_background else words
    while _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return Command(" ".join(line.split()), tuple(words), is_background)


@dataclass(frozen=True)
class Substitution:
    """What is done to the words of a command that starts with one of `heads`, told in a few words."""

    heads: tuple[str, ...]
    told: str
    change: Callable[[list[str]], list[str]]


def drop(*options: str) -> Callable[[list[str]], list[str]]:
    """Without these options and their values."""

    def change(words: list[str]) -> list[str]:
        kept, skipping = [], False
        for word in words:
            if skipping:
                skipping = False
            elif word in options:
                skipping = True
            else:
                kept.append(word)
        return kept

    return change


def without(*flags: str) -> Callable[[list[str]], list[str]]:
    """Without these flags, which have no value."""
    return lambda words: [word for word in words if word not in flags]


def give(**values: object) -> Callable[[list[str]], list[str]]:
    """With these options last, where they override; underscores are hyphens in those of `grrm`."""

    def change(words: list[str]) -> list[str]:
        hyphens = words[0] == "grrm"
        names = {name: name.replace("_", "-") if hyphens else name for name in values}
        kept = drop(*(f"--{name}" for name in names.values()))(words)
        return kept + [word for name, value in values.items() for word in (f"--{names[name]}", str(value))]

    return change


def classify(
    command: Command,
    executed: tuple[str, ...],
    checked: tuple[str, ...],
    substitutions: tuple[Substitution, ...],
) -> tuple[str, list[str], list[str]]:
    """(class, words to run, what was substituted). Raises AssertionError for a command that no list names."""
    told, words = [], list(command.words)
    for one in substitutions:
        if command.starts(*one.heads):
            changed = one.change(words)
            if changed != words:
                told.append(one.told)
            words = changed
    if command.starts(*checked):
        return CHECKED, [], []
    if told:
        return SUBSTITUTED, words, told
    assert command.starts(*executed), f"no list names what becomes of: {command.text}"
    return EXECUTED, words, []


def program(words: list[str]) -> list[str]:
    """What runs a command: this interpreter for ours, the shell for loops and for output that goes into a file."""
    if ">" in words:
        return ["bash", "-c", " ".join(words)]
    if words[0] == "grrm":
        return [sys.executable, "-m", "grrm.cli", *words[1:]]
    if words[0] == "for":
        return ["bash", "-c", f'grrm() {{ "{sys.executable}" -m grrm.cli "$@"; }}\n{words[1]}']
    return [sys.executable, *words[1:]] if words[0] == "python" else words


def run(folder: Path, words: list[str], status: int = 0) -> list[str]:
    """Run the words in a folder; what went wrong, if anything."""
    done = subprocess.run(
        program(words), cwd=folder, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode == status:
        return []
    return [f"{' '.join(words)}\nended with {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"]


def start_server(folder: Path, words: list[str]) -> tuple[subprocess.Popen[str], list[str]]:
    """The server once it listens, and what went wrong, if anything."""
    log = folder / f"server-{time.monotonic_ns()}.log"
    with log.open("w") as errors:
        server = subprocess.Popen(
            program(words), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert server.stdout is not None
    line = server.stdout.readline()
    problems = [] if line.startswith("listening on") else [f"{' '.join(words)}\n{log.read_text()[-2000:]}"]
    return server, problems


def cpu_seconds() -> float:
    """Of the processes that have ended."""
    return os.times().children_user + os.times().children_system


def show(table: list[tuple[str, float, str, list[str]]], seconds: float, cpu_s: float) -> None:
    """Print (class, seconds, text, substitutions) of each command by class, and each substitution once."""
    print()
    for kind in (EXECUTED, SUBSTITUTED, CHECKED):
        rows = [row for row in table if row[0] == kind]
        print(f"{kind}: {len(rows)} commands, {sum(row[1] for row in rows):.0f} s")
        for _, spent, text, _ in rows:
            print(f"  {spent:5.1f} s  {text[:110]}")
    print("substitutions:")
    for told in dict.fromkeys(one for *_, several in table for one in several):
        print(f"  {told}")
    print(f"{len(table)} commands in {seconds:.0f} s, {cpu_s:.0f} CPU-seconds")
