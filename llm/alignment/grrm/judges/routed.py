"""A judge for each kind of task: groups are routed by their data source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grrm.gqm.groups import Group, TranslationTask, Verdict
from grrm.judges.interface import Judge
from grrm.judges.mixture import MixtureJudge


@dataclass
class RoutedJudge:
    """Each group is judged by the judge of its route, by name in `judges`; `route_of` names a task's route.

    Mixtures are asked first, those of their judges that have a deadline at the same time.
    """

    judges: Mapping[str, Judge]
    route_of: Callable[[TranslationTask], str]
    name: str = "routes"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Raises KeyError for a route without a judge."""
        by_route: dict[str, list[int]] = {}
        for index, group in enumerate(groups):
            by_route.setdefault(self.route_of(group.task), []).append(index)
        waiting = {route: _begin(self.judges[route], [groups[i] for i in at]) for route, at in by_route.items()}
        verdicts: dict[int, Verdict] = {}
        for route, at in by_route.items():
            verdicts |= dict(zip(at, waiting[route](), strict=True))
        return [verdicts[index] for index in range(len(groups))]


def _begin(judge: Judge, groups: Sequence[Group]) -> Callable[[], list[Verdict]]:
    return judge.begin(groups) if isinstance(judge, MixtureJudge) else lambda: judge.judge(groups)
