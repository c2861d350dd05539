"""`grrm report`: one HTML file about a run or several."""

from __future__ import annotations

from pathlib import Path

import click

from grrm.cli.options import COUNT, FILE


@click.command()
@click.argument("runs", type=FILE, nargs=-1, required=True, metavar="RUN...")
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True, help="The file to write.")
@click.option("--groups", type=COUNT, default=4, show_default=True, help="Groups of each kind to show per run.")
def report(runs: tuple[Path, ...], out: Path, groups: int) -> None:
    """Write a page about RUN..., output folders of training runs: curves, groups, statuses, where judges disagree.

    The page needs nothing but itself and is in English and Chinese.
    """
    from grrm.tracking.report.run_report import write_report

    write_report(runs, out, groups)
    click.echo(f"{out.resolve().as_uri()}")
