"""Commands that take a folder of language-pair files in the place of a file, and a share of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from grrm.cli.options import COUNT, is_explicit, option_group
from grrm.errors import UserError

Value = TypeVar("Value")
_SHARED, _REWRITES = "grrm.shared", "grrm.rewrites"


parts_options = option_group(
    click.option("--part-id", type=click.IntRange(0), default=0, show_default=True, help="The part to work on."),
    click.option(
        "--device-num", type=COUNT, default=1, show_default=True, help="Number of parts to split the files into."
    ),
)


def over_folder(added: Callable[[dict[str, Any]], str | None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command, with ROWS and --out, work on every file of a folder, or on a share of them, also in place.

    A file that is in the output folder is done, one without rows is passed over. What `shared` opens is opened once.
    Rows that cannot be used are left out.

    In place a file is done that has the column that `added` says for the command's options. Each other one is rewritten
    in one step with all its rows, of which those that cannot be used have nulls.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--inplace", is_flag=True, help="Add the columns to the files of ROWS, each rewritten in one step."
        )
        @parts_options
        @wraps(command)
        def over(rows: Path, out: Path | None, part_id: int, device_num: int, inplace: bool, **options: Any) -> None:
            if inplace and is_explicit("--out") and out is not None and out.resolve() != rows.resolve():
                raise UserError(f"--inplace writes to {rows}, and --out says {out}: leave out one of them")
            if inplace and str(rows) == "-":
                raise UserError("--inplace needs a file or folder, and ROWS is standard input: give --out")
            out = rows if inplace else out
            if rows.is_dir():
                _over_files(rows, out, part_id, device_num, added(options), lambda **paths: command(**paths, **options))
                return
            if (part_id, device_num) != (0, 1):
                raise UserError(f"--part-id and --device-num share out the files of a folder, and {rows} is none")
            command(rows=rows, out=out, **options)

        return over

    return decorate


def _over_files(
    rows: Path, out: Path | None, part_id: int, device_num: int, added: str | None, command: Callable[..., None]
) -> None:
    from grrm.data.layouts.arrow_files import open_parquet
    from grrm.data.layouts.opening import ENDINGS
    from grrm.data.preference.pair_files import pair_files

    if out is None or out.is_file() or (out.suffix in ENDINGS and not out.is_dir()):
        raise UserError(f"{rows} is a folder: give another one with --out, or --inplace")
    rewrites = out.resolve() == rows.resolve()
    files = pair_files(rows, part_id, device_num)
    out.mkdir(parents=True, exist_ok=True)
    click.get_current_context().meta.update({_SHARED: {}, _REWRITES: rewrites})
    for path in files:
        target = out / path.name
        if not rewrites and target.exists():
            click.echo(f"{target}: there already", err=True)
            continue
        with open_parquet(path) as file:
            names, n_rows = file.schema_arrow.names, file.metadata.num_rows
        if rewrites and added in names:
            click.echo(f"{path}: has column {added} already", err=True)
        elif not n_rows:
            click.echo(f"{path}: no rows", err=True)
        else:
            command(rows=path, out=target)
            click.echo(str(target), err=True)


def leaves_out_rows() -> bool:
    """True in a command over the files of a folder that writes to another one, without the rows it cannot use."""
    return works_on_folder() and not click.get_current_context().meta[_REWRITES]


def works_on_folder() -> bool:
    """True in a command over the files of a folder."""
    context = click.get_current_context(silent=True)
    return context is not None and _SHARED in context.meta


def shared(name: str, open_it: Callable[[], Value]) -> Value:
    """Return what `open_it` opens; in a command that works on several files, the same for all of them."""
    context = click.get_current_context(silent=True)
    opened: dict[str, Any] | None = None if context is None else context.meta.get(_SHARED)
    if opened is None:
        return open_it()
    if name not in opened:
        opened[name] = open_it()
    value: Value = opened[name]
    return value
