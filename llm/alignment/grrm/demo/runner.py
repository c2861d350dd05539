"""`run_demo`: everything from the corpus to the report, with what is finished reused."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import grrm
from grrm.demo.execution import StageFailure, StageRunner, child_environment, say
from grrm.demo.layout import Layout
from grrm.demo.plan import Plan
from grrm.demo.processes import RewardService, signals_as_interrupts
from grrm.demo.results import show_figure
from grrm.demo.settings import TITLES, DemoSettings
from grrm.demo.stages import Stage
from grrm.errors import UserError
from grrm.tracking.console import format_seconds

NEEDED = (
    *("paddle", "paddlenlp", "visualdl", "babel", "tokenizers", "sacrebleu", "matplotlib", "jinja2"),
    *("flask", "waitress", "prometheus_client"),
)
_COLUMNS = {"sampled": "chrf", "greedy": "chrf_greedy", "exact, greedy": "exact_match_greedy"}
_OURS = (
    "stages",
    "data",
    "seed[0-9]*",
    "logs",
    "figures",
    "report.html",
    "summary.json",
    "judges.json",
    "policies.json",
)


def run_demo(*, out: Path, fresh: bool = False, **options: Any) -> int:
    """Train and evaluate the policies of `DemoSettings` below `out` and write the report; returns the exit status.

    Finished stages are reused and interrupted ones resumed; `fresh` starts over.

    0: done; 1: a stage failed (its last lines are printed); 130: interrupted. Raises UserError for a folder or an
    installation that cannot be used.
    """
    settings = DemoSettings(**options)
    console, root, out = Console(), checkout(), out.resolve()
    with only_run_in(out, "model"), signals_as_interrupts():
        if fresh:
            start_over(out)
        try:
            seconds = run_stages(Plan(settings, root, out).stages(), Layout(settings, root, out), console)
        except (StageFailure, KeyboardInterrupt) as stop:
            return say_why(console, stop)
        from grrm.demo.report import write_report  # the plotting libraries are not needed until here

        summary = write_report(out, settings, seconds)
    show_summary(console, summary, out)
    return 0


def say_why(console: Console, stop: StageFailure | KeyboardInterrupt) -> int:
    """Tell what ended the stages early; returns the exit status."""
    if isinstance(stop, KeyboardInterrupt):
        print("interrupted: everything is stopped; run the same command again to resume", file=sys.stderr, flush=True)
        return 130
    for line in stop.last_lines:
        say(console, f"  | {line}")
    print(f"error: {stop}", file=sys.stderr, flush=True)
    return 1


def run_stages(stages: Sequence[Stage], layout: Layout, console: Console) -> dict[str, float]:
    """Run what is not done, with a reward server where one is needed; the seconds of every stage.

    Raises StageFailure, and KeyboardInterrupt when interrupted.
    """
    settings, root, out = layout.settings, layout.root, layout.out
    environment = child_environment()
    server = [sys.executable, str(root / "reward_server" / "reward_server.py"), "--port", "0"]
    with RewardService(server, out / "logs" / "reward_server.log", cwd=root, env=environment) as service:
        runner = StageRunner(
            out=out,
            root=root,
            console=console,
            server_url=service.url,
            placeholders=layout.placeholders,
            env=environment,
        )
        seeds = f"seed{'s' if settings.n_seeds > 1 else ''} {', '.join(map(str, settings.seeds))}"
        say(console, f"{len(stages)} stages, {seeds}; logs in {out / 'logs'}")
        say(console, "Ctrl-C stops everything, and the same command goes on from there")
        return runner.run(stages)


def show_summary(console: Console, summary: Mapping[str, Any], out: Path) -> None:
    """Print the scores of every policy and where to look further."""
    table = Table(title="Held-out chrF (0 to 100, higher is better)", title_justify="left")
    table.add_column("policy")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for policy in summary["chrf"]:
        table.add_row(TITLES[policy], *(_cell(summary, key, policy) for key in _COLUMNS.values()))
    console.print(table)
    for line in ranking_lines(summary):
        say(console, line)
    for name, judged in summary["learned"].items():
        say(console, verdict_line(TITLES[name], judged))
    say(console, f"time of all stages: {format_seconds(sum(summary['seconds'].values()))}")
    say(console, f"report:  {out / 'report.html'}")
    say(console, f"scores:  {out / 'summary.json'}")
    # VisualDL fails on a browser's language that it lacks, unless it is started with one.
    visualdl = [str(Path(sys.executable).parent / "visualdl"), "--language", "en", "--logdir", str(out)]
    say(console, f"curves:  {shlex.join(visualdl)}")


def verdict_line(title: str, judged: Mapping[str, Any]) -> str:
    """Put `results.verdict` into a sentence: "GRPO, ranker: sampled chrF +5.10 (+4.70 to +5.50), more than …"."""
    spread = "one seed, so the spread over seeds is not known"
    if judged["above_spread"] is not None:
        more = "more" if judged["above_spread"] else "NOT more"
        spread = f"{more} than twice the standard deviation over seeds, {judged['sd']:.2f}"
    greedy = "not below" if judged["greedy_not_below"] else "BELOW"
    (low, high), (low_greedy, high_greedy) = judged["interval"], judged["greedy_interval"]
    return (
        f"{title}: sampled chrF {judged['gain']:+.2f} ({low:+.2f} to {high:+.2f}) against SFT, {spread}; greedy "
        f"{judged['greedy_gain']:+.2f} ({low_greedy:+.2f} to {high_greedy:+.2f}), {greedy} SFT"
    )


def ranking_lines(summary: Mapping[str, Any]) -> list[str]:
    """Say how well each judge ranks the policy's samples on the text of the report, a sentence each."""
    lines = []
    for name, of_sets in summary["ranking"].items():
        figures = of_sets["heldout"]
        pairs, correlation = (show_figure(figures[key], digits=3) for key in ("accuracy", "correlation"))
        lines.append(f"{TITLES[name]}: {pairs} of the pairs in order, correlation within a group {correlation}")
    return lines


def checkout() -> Path:
    """The checkout with the recipes and the reward server. Raises UserError when grrm is installed without one."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the demo needs {', '.join(missing)}: install them with pip install 'paddle-grrm[cpu,demo]'")
    root = Path(grrm.__file__).resolve().parents[3]
    if not (root / "llm" / "config" / "qwen").is_dir():
        raise UserError(f"the demo needs the recipes of a checkout and {root} has none: clone the repository")
    return root


@contextmanager
def only_run_in(out: Path, foreign: str) -> Iterator[None]:
    """Holds the lock of the output folder. A file system without locks keeps nobody out.

    Raises UserError when another demo runs there, when the folder holds something else, such as the stage `foreign`
    of the other command, whose stages of the same names would be replaced, or cannot be written.
    """
    try:
        if out.is_dir() and any(out.iterdir()) and not (out / "stages").is_dir():
            raise UserError(f"{out} is not empty and not a demo's output: give another folder")
        if (out / "stages" / f"{foreign}.started.json").exists():
            raise UserError(f"{out} has results of another command (stage {foreign}): give another folder")
        (out / "stages").mkdir(parents=True, exist_ok=True)
        lock = (out / "stages" / ".lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write to {out} ({error.strerror}): give another folder") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another run has the folder {out}: wait for it or give another folder") from None
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
        yield


def start_over(out: Path) -> None:
    """Remove what earlier demos left in `out`, and nothing else."""
    for path in [path for pattern in _OURS for path in out.glob(pattern)]:
        if path.name == "stages":
            for mark in path.glob("*.json"):
                mark.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _cell(summary: Mapping[str, Any], key: str, policy: str) -> str:
    """A score of a policy; a share of sentences in per cent."""
    figure = summary[key].get(policy)
    return show_figure(figure, 100) + " %" if key.startswith("exact") and figure else show_figure(figure)
