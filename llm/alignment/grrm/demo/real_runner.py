"""`run_real`: judges and policies of a pretrained model, with what is finished reused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from grrm.demo.execution import StageFailure
from grrm.demo.processes import signals_as_interrupts
from grrm.demo.real_plan import FLOAT32_TIMES, RealPlan, settings_for
from grrm.demo.real_settings import GRPO_EMBEDDING, HALVES, JUDGES, POLICIES, QUICK, RealSettings
from grrm.demo.runner import checkout, only_run_in, run_stages, say_why
from grrm.demo.stages import Marks
from grrm.errors import UserError
from grrm.judges.embedding_qe import open_embedder
from grrm.startup import cpu_facts

_TABLE_WIDTH = 150  # what the tables of judges need


def run_real(
    half: str = "both",
    *,
    quick: bool = False,
    minutes: float | None = None,
    arms: str | None = None,
    fresh: bool = False,
    out: Path = Path("runs/real"),
    **settings: Any,
) -> int:
    """Run the `half` "judges", "policies" or "both" below `out`; returns the exit status, as `run_demo` does.

    `quick` goes through every stage on a slice; `minutes` is the time of each half of one seed, which scales the
    numbers of training steps. `arms` names policies to train, comma between; None trains all. `fresh` starts the half
    over. `settings` are those of `RealSettings`; unless given, the `dtype` is float32 on processors that do not
    multiply bfloat16.

    Raises UserError for settings that cannot work, and for policies whose judges are missing.
    """
    if "avx512_bf16" not in cpu_facts()[1]:
        settings = {"dtype": "float32"} | settings
    halves = HALVES if half == "both" else (half,)
    if arms is not None:
        if POLICIES not in halves:
            raise UserError(f"--arms names {POLICIES}, and --half {half} makes none: leave out one of the two")
        settings["arms"] = read_arms(arms)
    slice_of: dict[str, Any] = dict(QUICK) if quick else {}
    chosen = settings_for(replace(RealSettings(**slice_of), **settings), minutes, halves)
    return run_halves(chosen, halves, fresh=fresh, out=out)


def read_arms(names: str) -> tuple[str, ...]:
    """Read "grpo,grpo_ranker". Raises UserError for a policy that there is not, or that lacks its extra."""
    arms, choices = tuple(name.strip() for name in names.split(",")), RealSettings().arms
    for name in arms:
        if name not in choices:
            raise UserError(f"--arms has no policy {name!r}: give some of {', '.join(choices)}")
    if GRPO_EMBEDDING in arms:
        open_embedder()
    return arms


def run_halves(settings: RealSettings, halves: tuple[str, ...], *, fresh: bool = False, out: Path) -> int:
    """`run_real` for any settings."""
    console, root, out = Console(), checkout(), out.resolve()
    plan, status = RealPlan(settings, root, out), 0
    if settings.dtype == "float32":
        console.print(f"float32: some {FLOAT32_TIMES:.0f} times as long as on a processor with bfloat16 products")
    stages = plan.stages(halves)
    with only_run_in(out, "tokenizer"), signals_as_interrupts():
        if JUDGES not in halves:
            require_judges(plan)
        for stage in stages if fresh else ():
            Marks(out / "stages").forget(stage)
            for path in stage.outputs:  # so that a run that ends early shows no earlier results as its own
                path.unlink(missing_ok=True)
        seconds: dict[str, float] = {}
        try:
            seconds = run_stages(stages, plan.layout, console)
        except (StageFailure, KeyboardInterrupt) as stop:
            status = say_why(console, stop)
        from grrm.demo.real_report import write_real  # what is there, where the stages ended early

        wide = Console(width=max(console.width, _TABLE_WIDTH))
        for line in write_real(plan, halves, seconds):
            wide.print(line, soft_wrap=isinstance(line, str))
    return status


def require_judges(plan: RealPlan) -> None:
    """Raises UserError where a file that the policies start from is not there."""
    stages = plan.stages([POLICIES])
    outputs = {path for stage in stages for path in stage.outputs}
    for path in (path for stage in stages for path in stage.inputs):
        if path not in outputs and not path.exists():
            raise UserError(f"the {POLICIES} need {path}: make the {JUDGES} first, in the same folder")
