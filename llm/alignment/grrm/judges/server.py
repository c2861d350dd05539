"""A reward server as a judge."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.gqm.groups import Group, Verdict
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge
from grrm.rewards.client import RewardClient


@judge("server", help="reward servers", needs="servers", reference="optional")
class ServerOptions(JudgeOptions):
    """None: the judge's options are set on the server."""

    def open(self, process: Process) -> Judge:
        """Open the process's client as the judge."""
        return ServerJudge(process.client())


class ServerJudge:
    """A reward server as a judge."""

    name = "reward server"

    def __init__(self, client: RewardClient) -> None:
        self.client = client

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group. Raises RewardServerError when no server answers within attempts and deadline."""
        return self.client.score(groups)
