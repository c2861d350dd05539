"""`grrm report`: one HTML file about a run or several."""

from __future__ import annotations

from pathlib import Path

import click

from grrm.cli.options import COUNT, FILE


@click.command()
@click.argument("runs", type=FILE, nargs=-1, required=True, metavar="RUN...")
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True, help="The file to write.")
@click.option("--groups", type=COUNT, default=2000, show_default=True, help="At most so many groups per run.")
def report(runs: tuple[Path, ...], out: Path, groups: int) -> None:
    """Write a page about RUN..., output folders of training runs: held-out results, curves, groups, what changed.

    It is one file that needs no network, in English and Chinese. Several runs are compared.
    """
    from grrm.tracking.report.run_report import write_report

    write_report(runs, out, groups)
    click.echo(f"{out.resolve().as_uri()}")
