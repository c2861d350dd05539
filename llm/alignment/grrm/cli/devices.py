"""`--devices`: the rows of one file shared out among processes, one per device, and put together in their order.

Every process is the command itself, on the rows that are its share. It appends what it makes of them to a file of its
own in OUT.parts, so that a run that was stopped goes on from there, on other devices as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import click

from grrm.cli.folders import works_on_folder
from grrm.cli.options import FILE
from grrm.cli.script_flags import ScriptCommand
from grrm.errors import UserError

Command = TypeVar("Command", bound=Callable[..., Any])
Opened = TypeVar("Opened")
Compute = Callable[[Opened, Sequence[int]], list[Any]]  # of row indices: the result of each, as JSON
_WORDS, _DEVICES, _SHARE = "grrm.words", "grrm.devices", "grrm.share"
_POLL_S = 0.2
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class SharedCommand(ScriptCommand):
    """A command that keeps its words, to start itself on every device."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does."""
        ctx.meta[_WORDS] = [*ctx.command_path.split()[1:], *args]
        return super().parse_args(ctx, args)


def devices_option(command: Command) -> Command:
    """--devices; what it says is for `over_devices`."""
    for option in (
        click.option("--share", type=(int, int, FILE), hidden=True, expose_value=False, callback=_keep(_SHARE)),
        click.option(
            "--devices",
            metavar="LIST",
            expose_value=False,
            callback=_keep(_DEVICES),
            help="Share the rows out to a process on each of these GPUs, such as 0-7 or 0,2; cpu:2 is two processes "
            "without one. Needs --out; the same command goes on after an interruption.",
        ),
    ):
        command = option(command)
    return command


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[name] = value

    return keep


def over_devices(
    n_rows: int, batch_rows: int, open_it: Callable[[], Opened], compute: Compute[Opened], description: str
) -> list[Any]:
    """Return the results of `compute` for the rows 0 to `n_rows`, in their order, computed here or on devices.

    It gets what `open_it` opened in its process and at most `batch_rows` rows, and must return the same for a row
    whichever are in its batch. A process that has a share ends here. Raises UserError for devices that cannot be used,
    and when one of their processes fails.
    """
    from grrm.inference.batch_calls import batches
    from grrm.tracking.console import StepProgress

    context = click.get_current_context(silent=True)  # None outside a command
    meta = context.meta if context else {}
    if meta.get(_SHARE) is not None:
        _compute_share(n_rows, batch_rows, open_it, compute, *meta[_SHARE])
        raise click.exceptions.Exit(0)
    if meta.get(_DEVICES) is not None:
        shares = _Shares.of_command(meta[_DEVICES], meta[_WORDS], n_rows)
        with closing(StepProgress(n_rows, description=description)) as progress:
            return shares.run(progress.update)
    opened = open_it()
    with closing(StepProgress(n_rows, description=description)) as progress:
        ranges = batches(n_rows, batch_rows, lambda done, _: progress.update(done))
        return [value for rows in ranges for value in compute(opened, rows)]


def environments(devices: str) -> dict[str, dict[str, str]]:
    """For each device of "0-7", "0,2" or "cpu:2" its name and the environment of its process.

    Raises UserError for another form, and a device that is named twice.
    """
    kind, _, number = devices.partition(":")
    if kind == "cpu" and number.isdecimal() and int(number) > 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, cores // int(number))))
        environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": threads}
        return {f"cpu:{index}": environment for index in range(int(number))}
    ranges = [_RANGE.fullmatch(part.strip()) for part in devices.split(",")]
    names = [str(name) for span in ranges if span for name in range(int(span[1]), int(span[2] or span[1]) + 1)]
    if None in ranges or not names or len(set(names)) < len(names):
        raise UserError(f"--devices is {devices!r}: give different GPUs, such as 0-7 or 0,2, or processes as cpu:2")
    return {f"gpu:{name}": {"CUDA_VISIBLE_DEVICES": name} for name in names}


class _Shares:
    """The processes of a command: each has every N-th row, and a file for what becomes of them."""

    def __init__(
        self, devices: Mapping[str, Mapping[str, str]], words: Sequence[str], n_rows: int, parts: Path
    ) -> None:
        self.devices, self.words, self.n_rows, self.parts = devices, words, n_rows, parts
        n = len(devices)
        self.key = _fingerprint(words)
        self.files = [parts / f"{self.key}-{index}-of-{n}.jsonl" for index in range(n)]

    @classmethod
    def of_command(cls, devices: str, words: Sequence[str], n_rows: int) -> _Shares:
        """The shares of the command that runs. Raises UserError where it cannot be shared out."""
        parameters = click.get_current_context().params
        rows, out = parameters["rows"], parameters["out"]
        if works_on_folder():
            raise UserError("--devices shares out the rows of a file: for a folder give --part-id and --device-num")
        if out is None or str(rows) == "-":
            raise UserError("--devices needs files: give ROWS as a file, and --out")
        if parameters["urls"]:
            raise UserError("--devices is for a checkpoint and --url for servers: leave out one of them")
        return cls(environments(devices), words, n_rows, out.with_name(f"{out.name}.parts"))

    def run(self, tell: Callable[[int], object]) -> list[Any]:
        """Start the processes, wait for them, and read what they made; their files are removed when all is there."""
        from grrm.demo.runner import sigterm_as_interrupt

        self.parts.mkdir(parents=True, exist_ok=True)
        done = _read_done(self.parts, self.key)
        if len(done) < self.n_rows:
            with sigterm_as_interrupt(), ExitStack() as stack:
                self._wait(stack, tell, len(done))
            done = _read_done(self.parts, self.key)
        for path in self.parts.iterdir():
            path.unlink()
        self.parts.rmdir()
        return [done[row] for row in range(self.n_rows)]

    def _wait(self, stack: ExitStack, tell: Callable[[int], object], n_done: int) -> None:
        from grrm.demo.processes import Child, tail

        children = {}
        for index, (name, environment) in enumerate(self.devices.items()):
            share = ["--share", str(index), str(len(self.devices)), str(self.files[index])]
            command = [sys.executable, "-m", "grrm.cli", *self.words, *share]
            log = self.parts / f"{name.replace(':', '-')}.log"
            child = Child(command, log, cwd=Path.cwd(), env=os.environ | environment)
            children[name] = stack.enter_context(child)
        lines = _LineCount(self.files)
        statuses: set[int | None] = {None}
        while None in statuses:
            time.sleep(_POLL_S)
            statuses = set()
            for name, child in children.items():
                statuses.add(status := child.poll())
                if status:
                    said = " ".join(tail(child.output(), 1)).removeprefix("error: ")
                    raise UserError(
                        f"the process on {name} ended with status {status} ({said}): see {child.log}, mend the cause "
                        "and run the same command again to go on"
                    )
            tell(n_done + lines.new())


class _LineCount:
    """The lines that are appended to files, some of which are not there yet."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._read = {path: path.stat().st_size if path.exists() else 0 for path in files}
        self._n = 0

    def new(self) -> int:
        """Count those since the beginning."""
        for path, start in self._read.items():
            if path.exists():
                with path.open("rb") as file:
                    file.seek(start)
                    content = file.read()
                self._n += content.count(b"\n")
                self._read[path] = start + len(content)
        return self._n


def _compute_share(
    n_rows: int,
    batch_rows: int,
    open_it: Callable[[], Opened],
    compute: Compute[Opened],
    index: int,
    n: int,
    path: Path,
) -> None:
    """Append what becomes of every `n`-th row from `index` on, a line each, but for those that are there."""
    from grrm.inference.batch_calls import batches

    done = _read_done(path.parent, path.name.partition("-")[0])
    _drop_half_line(path)
    still_open = [row for row in range(index, n_rows, n) if row not in done]
    if not still_open:
        return
    opened = open_it()
    for positions in batches(len(still_open), batch_rows, None):
        rows = [still_open[position] for position in positions]
        lines = [json.dumps([row, value]) + "\n" for row, value in zip(rows, compute(opened, rows), strict=True)]
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))


def _read_done(parts: Path, key: str) -> dict[int, Any]:
    """Read the results of the rows that are done; a line that is being written, or was cut off, is none."""
    done = {}
    for path in sorted(parts.glob(f"{key}-*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            row, done_value = json.loads(line)
            done[row] = done_value
    return done


def _drop_half_line(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)


def _fingerprint(words: Sequence[str]) -> str:
    """Of the command without its devices, and of the files and folders that it names: another makes other rows."""
    digest, skipped = hashlib.sha256(), False
    for word in words:
        if not skipped and not word.startswith("--devices"):
            digest.update(f"{word}\0".encode())
            path = Path(word.partition("=")[2] or word)
            for file in [path, *sorted(path.glob("*"))] if path.exists() else []:
                state = file.stat()
                digest.update(f"{file.name} {state.st_size} {state.st_mtime_ns}\0".encode() if file.is_file() else b"")
        skipped = word == "--devices"
    return digest.hexdigest()[:16]
