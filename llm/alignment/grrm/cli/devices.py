"""`--devices`: the rows of one file shared out among processes, one per device, and put together in their order.

Every process is the command itself, on the rows that are its share. It appends what it makes of them to a file of its
own in OUT.parts, so that a run that was stopped goes on from there, on other devices as well. A process that ends too
early, or finishes no batch in time, ends the command.

A command without devices may append its results to such a file, too.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.folders import works_on_folder
from grrm.cli.options import FILE, FiniteRange, option_group, refuse_ineffective
from grrm.cli.script_flags import ScriptCommand
from grrm.cli.shares import Compute, IsFinal, Opened, compute_share, fingerprint, read_done
from grrm.errors import UserError
from grrm.startup import end_with_parent, usable_cores

if TYPE_CHECKING:
    from grrm.demo.processes import Child

_WORDS, _DEVICES, _DEADLINE = "grrm.words", "grrm.devices", "grrm.deadline"
_SHARE, _SHARES = "grrm.share", "grrm.shares"
_POLL_S = 0.2
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class SharedCommand(ScriptCommand):
    """A command that keeps its words, to start itself on every device, and then the results until it has ended."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does."""
        ctx.meta[_WORDS] = [*ctx.command_path.split()[1:], *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run as click does; what came from the devices is removed after its output was written, and not before."""
        result = super().invoke(ctx)
        if (shares := ctx.meta.get(_SHARES)) is not None:
            shares.remove()
        return result


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[name] = value

    return keep


# What they say is for `over_devices`.
devices_option = option_group(
    click.option(
        "--batch-deadline",
        type=FiniteRange(0, min_open=True),
        default=7200.0,
        show_default=True,
        expose_value=False,
        callback=_keep(_DEADLINE),
        help="With --devices: timeout of a batch in seconds; the first one includes opening the model.",
    ),
    click.option(
        "--devices",
        metavar="LIST",
        expose_value=False,
        callback=_keep(_DEVICES),
        help="Distribute the rows to one process per GPU, such as 0-7 or 0,2; cpu:2 is two processes "
        "without GPUs. Needs --out; the same command continues after an interruption.",
    ),
    click.option("--share", type=(int, int, FILE), hidden=True, expose_value=False, callback=_keep(_SHARE)),
)


def over_devices(
    n_rows: int,
    batch_rows: int,
    open_it: Callable[[], Opened],
    compute: Compute[Opened],
    description: str,
    *,
    resumes: bool = False,
    is_final: IsFinal = lambda value: True,
) -> list[Any]:
    """Return the results of `compute` for the rows 0 to `n_rows`, in their order, computed here or on devices.

    It gets what `open_it` opened in its process and at most `batch_rows` rows, and must return the same for a row
    whichever are in its batch. A process that has a share ends here. With `resumes` a command on one file goes on where
    it ended early, also without devices, and computes the rows again whose results are not `is_final`.

    Raises UserError for devices that cannot be used, and when one of their processes fails or takes too long.
    """
    from grrm.inference.batch_calls import batches
    from grrm.tracking.console import StepProgress

    context = click.get_current_context(silent=True)  # None outside a command
    meta = context.meta if context else {}
    if meta.get(_SHARE) is not None:
        end_with_parent()  # the next run of a command that was killed writes to the same file
        compute_share(n_rows, batch_rows, open_it, compute, *meta[_SHARE])
        raise click.exceptions.Exit(0)
    if meta.get(_DEVICES) is not None:
        meta[_SHARES] = shares = _Shares.of_command(meta[_DEVICES], meta[_WORDS], n_rows)
        return shares.run(description, meta[_DEADLINE])
    if context is not None:
        refuse_ineffective(("batch_deadline",), "without --devices")
        if resumes and context.params["out"] is not None and not works_on_folder() and _rows_of(context)[0].is_file():
            meta[_SHARES] = shares = _Shares({"this": {}}, meta[_WORDS], n_rows, context)
            return shares.compute(batch_rows, open_it, compute, description, is_final)
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
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, usable_cores() // int(number))))
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
        self, devices: Mapping[str, Mapping[str, str]], words: Sequence[str], n_rows: int, context: click.Context
    ) -> None:
        self.devices, self.words, self.n_rows, out = devices, words, n_rows, context.params["out"]
        self.parts, self.key = out.with_name(f"{out.name}.parts"), fingerprint(words, _rows_of(context)[0])
        n = len(devices)
        self.files = [self.parts / f"{self.key}-{index}-of-{n}.jsonl" for index in range(n)]

    @classmethod
    def of_command(cls, devices: str, words: Sequence[str], n_rows: int) -> _Shares:
        """The shares of the command that runs. Raises UserError where it cannot be shared out."""
        context = click.get_current_context()
        rows, name = _rows_of(context)
        if works_on_folder():
            raise UserError("--devices shares out the rows of a file: for a folder give --part-id and --device-num")
        if context.params["out"] is None or str(rows) == "-":
            raise UserError(f"--devices needs files: give {name} as a file, and --out")
        if context.params["urls"]:
            raise UserError("--devices is for a checkpoint and --url for servers: leave out one of them")
        return cls(environments(devices), words, n_rows, context)

    def compute(
        self,
        batch_rows: int,
        open_it: Callable[[], Opened],
        compute: Compute[Opened],
        description: str,
        is_final: IsFinal,
    ) -> list[Any]:
        """Compute the rows that are not done in this process, and read the results of all."""
        from grrm.tracking.console import StepProgress

        n_done, path = len(read_done(self.parts, self.key, is_final)), self.files[0]
        try:
            with closing(StepProgress(self.n_rows, initial=n_done, description=description)) as progress:
                compute_share(self.n_rows, batch_rows, open_it, compute, 0, 1, path, progress.update, is_final)
        finally:
            done = read_done(self.parts, self.key)
            n_final = sum(map(is_final, done.values()))
            if n_final and len(done) < self.n_rows:
                sentence = f"{n_final} of {self.n_rows} rows are in {self.parts}: the same command goes on from there"
                click.echo(sentence, err=True)
        return [done[row] for row in range(self.n_rows)]

    def run(self, description: str, deadline_s: float) -> list[Any]:
        """Start the processes for the rows that are not done, wait for them, and read what they made."""
        from grrm.demo.processes import signals_as_interrupts
        from grrm.tracking.console import StepProgress

        self.parts.mkdir(parents=True, exist_ok=True)
        done = read_done(self.parts, self.key)
        if len(done) < self.n_rows:
            progress = StepProgress(self.n_rows, initial=len(done), description=description)
            with closing(progress), signals_as_interrupts(), ExitStack() as stack:
                self._wait(stack, progress.update, len(done), deadline_s)
            done = read_done(self.parts, self.key)
        return [done[row] for row in range(self.n_rows)]

    def remove(self) -> None:
        """Remove the files of the processes."""
        for path in self.parts.iterdir():
            path.unlink()
        self.parts.rmdir()

    def _wait(self, stack: ExitStack, tell: Callable[[int], object], n_done: int, deadline_s: float) -> None:
        from grrm.demo.processes import Child

        processes = []
        for index, (name, environment) in enumerate(self.devices.items()):
            share = ["--share", str(index), str(len(self.devices)), str(self.files[index])]
            command = [sys.executable, "-m", "grrm.cli", *self.words, *share]
            log = self.parts / f"{name.replace(':', '-')}.log"
            child = Child(command, log, cwd=Path.cwd(), env=os.environ | environment)
            processes.append(_Process(name, stack.enter_context(child), self.files[index]))
        running = processes
        while running:
            time.sleep(_POLL_S)
            running = [process for process in processes if process.runs(deadline_s)]
            tell(n_done + sum(process.n_lines for process in processes))


class _Process:
    """A process with a share, and the lines that it has appended to its file."""

    def __init__(self, name: str, child: Child, path: Path) -> None:
        self.name, self.child, self.path, self.n_lines = name, child, path, 0
        self._read = path.stat().st_size if path.exists() else 0
        self._advanced_s = time.monotonic()

    def runs(self, deadline_s: float) -> bool:
        """False after it has done its share. Raises UserError after it failed, or without a line for `deadline_s`."""
        status = self.child.poll()
        if status:
            how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
            raise self._failure(how, "mend the cause")
        if self._new_lines():
            self._advanced_s = time.monotonic()
        if status is None and time.monotonic() - self._advanced_s > deadline_s:
            raise self._failure(
                f"finished no batch in {deadline_s:g} s", "raise --batch-deadline or lower --batch-rows"
            )
        return status is None

    def _new_lines(self) -> int:
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        self._read += len(content)
        self.n_lines += (n_new := content.count(b"\n"))
        return n_new

    def _failure(self, how: str, remedy: str) -> UserError:
        from grrm.demo.processes import tail

        said = " ".join(tail(self.child.output(), 1)).removeprefix("error: ") or "it said nothing"
        return UserError(
            f"the process on {self.name} {how} ({said}): see {self.child.log}, {remedy} and run the same command "
            "again to go on"
        )


def _rows_of(context: click.Context) -> tuple[Path, str]:
    """The file of a command's rows, and its argument's name."""
    argument = next(item for item in context.command.params if isinstance(item, click.Argument))
    return context.params[str(argument.name)], argument.human_readable_name
