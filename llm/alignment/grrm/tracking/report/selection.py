"""Which groups of a run's dump a report shows, found in one pass over it and fetched in another: dumps are large.

Nobody picks by hand: the rules are the spread of rewards, the disagreement of judges, what went without a score, and
sources that come again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from grrm.judges.permute import kendall_tau_b
from grrm.tracking.opinions import read_opinions
from grrm.tracking.rollout_dump import ROLLOUTS, read_rollouts

Place = tuple[int, str]  # step and group id
Opinions = Mapping[str, Mapping[Place, Mapping[str, Any]]]
Scores = Sequence[float | None]
STAGES = 8  # steps at which a source is shown, where it comes that often


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A dumped record, the scores of further judges by their names, and how far all judges agree (tau-b)."""

    record: Mapping[str, Any]
    judges: Mapping[str, Scores]
    agreement: float | None

    def distinct(self) -> list[tuple[Mapping[str, Any], int]]:
        """The first candidate with each translation and how many there are, the best reward first."""
        counts = Counter(candidate["translation"] for candidate in self.record["candidates"])
        first = {candidate["translation"]: candidate for candidate in reversed(self.record["candidates"])}
        ordered = sorted(first.values(), key=lambda one: -math.inf if one["reward"] is None else one["reward"])
        return [(candidate, counts[candidate["translation"]]) for candidate in reversed(ordered)]


@dataclass(slots=True)
class Survey:
    """What the first pass finds out: counts, and of every group what it is picked by."""

    uses: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    judges: set[str] = field(default_factory=set)
    spreads: dict[Place, float] = field(default_factory=dict)
    concord: dict[Place, float] = field(default_factory=dict)  # agreement, weighed by the pairs it is about
    failed: dict[Place, str] = field(default_factory=dict)
    by_source: dict[int, list[Place]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups to show: by spread of rewards, by disagreement, without scores, and sources through time."""

    survey: Survey
    telling: list[ShownGroup]
    disputed: list[ShownGroup]
    failed: list[ShownGroup]
    through_time: list[list[ShownGroup]]


def select_groups(run: Path, per_kind: int = 4) -> Selection:
    """The groups of the run in this folder, at most `per_kind` of a kind. Raises ValueError on a damaged dump."""
    opinions = read_opinions(run)
    survey = _survey(run, opinions)
    telling = _evenly(_widest_of_steps(survey.spreads), per_kind)
    disputed = sorted(survey.concord, key=lambda place: (survey.concord[place], place))[:per_kind]
    failed = _one_of_each(survey.failed, per_kind)
    recurring = sorted((places for places in survey.by_source.values() if _n_steps(places) > 1), key=_by_recurrence)
    courses = [_evenly(_one_a_step(places), STAGES) for places in recurring[:per_kind]]
    wanted = {*telling, *disputed, *failed, *(place for course in courses for place in course)}
    found = {place: _shown(record, opinions) for place, record in _records(run) if place in wanted}
    return Selection(
        survey,
        [found[place] for place in telling],
        [found[place] for place in disputed],
        [found[place] for place in failed],
        [[found[place] for place in course] for course in courses],
    )


def judges_of(record: Mapping[str, Any], opinions: Opinions) -> dict[str, Scores]:
    """Scores of a group beside the run's own: those of a mixture's judges, and of judges asked afterwards."""
    parts = (record["verdict"] or {}).get("parts") or ()
    found: dict[str, Scores] = {part["name"]: part["scores"] for part in parts}
    for name, by_place in opinions.items():
        opinion = by_place.get(_place(record))
        if opinion is not None:
            found[f"{name} *" if name in found else name] = opinion["scores"]
    return found


def _records(run: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    for record in read_rollouts(Path(run) / ROLLOUTS):
        yield _place(record), record


def _place(record: Mapping[str, Any]) -> Place:
    return int(record["step"]), str(record["group_id"])


def _survey(run: Path, opinions: Opinions) -> Survey:
    survey = Survey()
    for place, record in _records(run):
        use = record.get("use", "trained")
        statuses = [candidate["status"] or "not judged" for candidate in record["candidates"]]
        survey.uses[use] += 1
        survey.statuses.update(statuses)
        survey.rejections.update((record["verdict"] or {}).get("rejections") or ())
        unscored = [status for status in statuses if status not in ("scored", "duplicate")]
        if use in ("rejected", "aborted") or unscored:
            survey.failed[place] = unscored[0] if unscored else use
        if use != "trained":
            continue
        rewards = [candidate["reward"] for candidate in record["candidates"] if candidate["reward"] is not None]
        survey.spreads[place] = max(rewards) - min(rewards) if rewards else 0.0
        survey.by_source.setdefault(hash((record["source"], record["trg_lang"])), []).append(place)
        judges = judges_of(record, opinions)
        survey.judges.update(judges)
        agreement = _agreement(record, judges)
        if agreement is not None:
            n_distinct = len({candidate["translation"] for candidate in record["candidates"]})
            survey.concord[place] = agreement * math.comb(n_distinct, 2)
    return survey


def _shown(record: Mapping[str, Any], opinions: Opinions) -> ShownGroup:
    judges = judges_of(record, opinions)
    return ShownGroup(record, judges, _agreement(record, judges))


def _agreement(record: Mapping[str, Any], judges: Mapping[str, Scores]) -> float | None:
    """The lowest tau-b of any two judges on the candidates that both scored; None where nothing can be compared.

    A mixture's own scores follow from its judges' and are not compared with them.
    """
    own = [candidate["score"] for candidate in record["candidates"]]
    is_mixture = bool((record["verdict"] or {}).get("parts"))
    columns = [*judges.values()] if is_mixture else [own, *judges.values()]
    taus = []
    for first, second in combinations(columns, 2):
        both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
        tau = kendall_tau_b([a for a, _ in both], [b for _, b in both])
        if tau is not None:
            taus.append(tau)
    return min(taus) if taus else None


def _widest_of_steps(spreads: Mapping[Place, float]) -> list[Place]:
    """Of every step the group whose rewards lie furthest apart; of equal ones the first."""
    best: dict[int, Place] = {}
    for place, spread in spreads.items():
        step = place[0]
        if step not in best or spread > spreads[best[step]]:
            best[step] = place
    return [best[step] for step in sorted(best)]


def _evenly(places: Sequence[Place], count: int) -> list[Place]:
    """At most `count` of the places at equal distances, the first and the last among them."""
    if len(places) <= count:
        return list(places)
    if count == 1:
        return [places[-1]]
    return [places[math.floor(i * (len(places) - 1) / (count - 1))] for i in range(count)]


def _one_of_each(causes: dict[Place, str], count: int) -> list[Place]:
    """The last group of every cause, then more from the end, at most `count`."""
    last = {cause: place for place, cause in causes.items()}
    chosen = list(last.values())
    chosen += [place for place in reversed(causes) if place not in chosen]
    return sorted(chosen[:count])


def _one_a_step(places: Sequence[Place]) -> list[Place]:
    return list({place[0]: place for place in reversed(places)}.values())[::-1]


def _n_steps(places: Sequence[Place]) -> int:
    return len({step for step, _ in places})


def _by_recurrence(places: Sequence[Place]) -> tuple[int, Place]:
    return -_n_steps(places), places[0]
