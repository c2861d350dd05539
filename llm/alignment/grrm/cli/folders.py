"""Commands that take a folder of language-pair files in the place of a file, and a share of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from grrm.cli.options import COUNT, option_group
from grrm.errors import UserError

if TYPE_CHECKING:
    from grrm.cli.records import Cell, Records

Value = TypeVar("Value")
_SHARED = "grrm.shared"


parts_options = option_group(
    click.option("--part-id", type=click.IntRange(0), default=0, show_default=True, help="The part to work on."),
    click.option(
        "--device-num", type=COUNT, default=1, show_default=True, help="Number of parts to split the files into."
    ),
)


def over_folder(command: Callable[..., None]) -> Callable[..., None]:
    """Let `command`, with ROWS and --out, work on every file of a folder, or on a share of them.

    A file that is in the output folder is done, one without rows is passed over. What `shared` opens is opened once.
    Rows that cannot be used are left out.
    """

    @parts_options
    @wraps(command)
    def over(rows: Path, out: Path | None, part_id: int, device_num: int, **options: Any) -> None:
        if not rows.is_dir():
            if (part_id, device_num) != (0, 1):
                raise UserError(f"--part-id and --device-num share out the files of a folder, and {rows} is none")
            command(rows=rows, out=out, **options)
            return
        from grrm.data.preference.pair_files import pair_files, row_count

        if out is None or out.suffix or out.resolve() == rows.resolve():
            raise UserError(f"{rows} is a folder: give another one with --out")
        files = pair_files(rows, part_id, device_num)
        out.mkdir(parents=True, exist_ok=True)
        click.get_current_context().meta[_SHARED] = {}
        for path in files:
            target = out / path.name
            if target.exists():
                click.echo(f"{target}: there already", err=True)
            elif not row_count(path):
                click.echo(f"{path}: no rows", err=True)
            else:
                command(rows=path, out=target, **options)
                click.echo(str(target), err=True)

    return over


def usable_of_folder(records: Records, cells: Sequence[Cell]) -> Records:
    """In a command that works on a folder, the rows that can be used, telling of the others; else all of them.

    For commands in which a bad row of a single file is an error: a folder is a stage of a pipeline, which it must not
    stop. Raises RowError where no row is left.
    """
    if not works_on_folder():
        return records
    from grrm.cli.records import usable_rows

    usable = usable_rows(records, cells)
    if usable.reasons:
        click.echo(f"{records.origin}: {usable.reasons.total()} rows left out ({usable.reasons_summary()})", err=True)
    return usable.records


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
