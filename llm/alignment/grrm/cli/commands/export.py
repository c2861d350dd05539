"""`grrm export`: a trained policy in the form of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path

import click

from grrm.cli.options import FILE


@click.command()
@click.argument("run", type=FILE)
@click.argument("out", type=FILE)
def export(run: Path, out: Path) -> None:
    """Write the policy in RUN, an output folder or a checkpoint, to the new folder OUT for transformers and vLLM."""
    from grrm.engine.open import prepare_paddle
    from grrm.models.export import export_policy

    prepare_paddle(quiet=True)
    for name in export_policy(run, out):
        click.echo(out / name)
