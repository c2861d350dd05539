"""grrm replay and grrm report: what a run's dumped groups and records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import COUNT, FILE
from grrm.entry import read_assignments
from grrm.errors import UserError

if TYPE_CHECKING:
    from grrm.evaluation.bootstrap import Interval
    from grrm.evaluation.ranking import JudgedGroup
    from grrm.gqm.groups import Verdict
    from grrm.rl.replay import Difference

SHOWN = 5  # differences
GROUPS_AT_A_TIME = 64  # that are judged


@click.command()
@click.argument("run", type=FILE)
@click.option("--step", type=COUNT, help="Only this step.  [default: all]")
@click.option(
    "--judge", "judge", metavar="NAME", help="Judge the groups again: a judge as in reward_sources, such as chrf."
)
@click.option("--only-failed", is_flag=True, help="With --judge: only the groups that the run's judge failed on.")
@click.option("--judge-option", "options", multiple=True, metavar="NAME=VALUE", help="With --judge: an option of it.")
@click.option("--model", help="With --judge: folder of its checkpoint, or with --url the model's name there.")
@click.option("--url", "urls", multiple=True, help="With --judge: server; repeat for a pool.")
@click.option("--token-file", help="With --judge: file with the servers' token.")
@click.option("--name", help="With --judge: its name in the report.  [default: the judge]")
def replay(run: Path, step: int | None, judge: str | None, only_failed: bool, **source: Any) -> int:
    """Compute the rewards and advantages of RUN, the output folder of an RL run, again from its rollouts.

    They must come out bit for bit; exit status 1 if they do not. With --judge the groups are judged anew as well, and
    how far the two judges agree is printed; the verdicts are kept in RUN/rejudged for `grrm report`, where those on
    other groups stay.

    With --only-failed those are judged that have no verdict: the run's judge was late, unreachable, unreadable, or not
    asked.
    """
    judge_options = {name: value for name, value in source.items() if value}
    if judge is None and only_failed:
        raise UserError("--only-failed has no effect without --judge; name one")
    if judge is None and judge_options:
        raise UserError(f"--{next(iter(judge_options)).replace('_', '-')} has no effect without --judge; name one")
    from grrm.rl.replay import replay as replayed_steps

    shown: list[tuple[int, Difference]] = []
    n_steps = n_compared = n_different = 0
    for result in replayed_steps(run, step):
        n_steps, n_compared = n_steps + 1, n_compared + result.n_compared
        n_different += len(result.differences)
        shown += [(result.step, difference) for difference in result.differences[: SHOWN - len(shown)]]
    for number, difference in shown:
        location = f"step {number}, group {difference.group_id}, candidate {difference.candidate}"
        click.echo(f"{location}: {difference.name} {difference.dumped!r} in the dump, {difference.replayed!r} now")
    same = n_compared - n_different
    click.echo(f"{same} of {n_compared} rewards and advantages of {n_steps} step(s) are the run's, bit for bit")
    if judge is not None:
        _judge_again(run, step, {"judge": judge, **judge_options}, only_failed)
    return 1 if n_different else 0


def _judge_again(run: Path, step: int | None, settings: dict[str, Any], only_failed: bool) -> None:
    from grrm.evaluation.ranking import JudgedGroup
    from grrm.inference.judge_sources import open_source
    from grrm.judges.server import ServerJudge
    from grrm.judges.sources import read_sources
    from grrm.rl.replay import dumped_steps
    from grrm.rl.reward_sources import wait_until_ready
    from grrm.tracking.console import StepProgress
    from grrm.tracking.report.selection import write_opinions
    from grrm.tracking.rollout_dump import group_of, lacks_verdict

    if "options" in settings:
        settings["options"] = read_assignments(settings["options"], "judge option")
    if "urls" in settings:
        settings["urls"] = list(settings["urls"])
    (source,) = read_sources([settings], "--judge")

    def records() -> Iterator[dict[str, Any]]:  # read once more rather than kept, as all of them may exceed memory
        return (record for number, group in dumped_steps(run) if step in (None, number) for record in group)

    is_judged = [not only_failed or lacks_verdict(record) for record in records()]
    n_groups, n_judged = len(is_judged), sum(is_judged)
    if only_failed:
        click.echo(f"{n_judged} of {n_groups} groups have no verdict in the dump")
        if not n_judged:
            return
    opened = open_source(source)
    if isinstance(opened, ServerJudge):
        wait_until_ready(opened.client, "--url")
    groups: list[JudgedGroup] = []
    statuses = Counter[str]()

    def judged() -> Iterator[tuple[dict[str, Any], Verdict]]:
        chosen = compress(records(), is_judged)
        while batch := list(islice(chosen, GROUPS_AT_A_TIME)):
            for record, verdict in zip(batch, opened.judge([group_of(record) for record in batch]), strict=True):
                gold = [candidate["score"] for candidate in record["candidates"]]
                groups.append(JudgedGroup("", gold, verdict.scores))
                statuses.update(status.value for status in verdict.statuses)
                yield record, verdict
            progress.update(len(groups))

    with closing(StepProgress(n_judged, description="judging")) as progress:
        path = write_opinions(run, source.title, judged())
    if only_failed:
        counts = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        click.echo(f"{source.title} on their candidates: {counts}; written to {path}")
        return
    click.echo(f"{source.title} on {n_judged} groups, against the judge of the run:")
    _tell_agreement(groups)
    click.echo(f"written to {path}")


def _tell_agreement(groups: Sequence[JudgedGroup]) -> None:
    """Show the agreement of the judge with that of the run, whose scores stand for gold."""
    from grrm.evaluation.meta_metrics import correlation, kendall_tau_b
    from grrm.evaluation.ranking import score_ranking

    pairs = score_ranking(groups, gold_ties="count")
    click.echo(f"  Kendall tau-b within groups    {_shown(kendall_tau_b(groups))}")
    click.echo(f"  pairs in the same relation     {_shown(pairs.accuracy)}")
    click.echo(f"  correlation within groups      {_shown(correlation(groups))}")
    coverage = "none were scored" if pairs.coverage is None else f"{pairs.coverage:.0%}"
    click.echo(f"  of the run's scored pairs, scored here too: {coverage}")


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "not defined"
    return f"{interval.mean:+.3f}  (95 % from {interval.low:+.3f} to {interval.high:+.3f})"


@click.command()
@click.argument("runs", type=FILE, nargs=-1, required=True, metavar="RUN...")
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True, help="The file to write.")
@click.option("--groups", type=COUNT, default=2000, show_default=True, help="Maximum groups per run.")
def report(runs: tuple[Path, ...], out: Path, groups: int) -> None:
    """Write a page about RUN..., output folders of training runs: held-out results, curves, groups, what changed.

    It is one file that needs no network, in English and Chinese. Several runs are compared.
    """
    from grrm.tracking.report.run_report import write_report

    write_report(runs, out, groups)
    click.echo(f"{out.resolve().as_uri()}")
