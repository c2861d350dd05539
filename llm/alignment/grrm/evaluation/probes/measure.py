"""Groups of a reference and damaged copies of it, and the share of them that a judge orders right."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from grrm.evaluation.bootstrap import Interval, bootstrap_interval, bootstrap_ratio
from grrm.evaluation.meta_metrics import correlation
from grrm.evaluation.probes.perturb import PROBES, ProbeRow, damaged
from grrm.evaluation.probes.rows import DamagedRows
from grrm.evaluation.ranking import ALL, JudgedGroup
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.gqm.languages import language_pair
from grrm.rewards.failure_policy import GATE_FAILURES

REFERENCE = "reference"  # the id of the candidate that should win; the others' are names of probes
CHANCE = 0.5
MIN_ROWS = 10  # that a probe has to be decided on before it is called a hack
# What a guard or a gate says of a candidate that no judge is shown.
REFUSALS = GATE_FAILURES | {Status.UNSAFE_CANDIDATE}


@dataclass(frozen=True, slots=True)
class ProbeGroup:
    """A group to judge, the index of its row, the part of the row's damages in it, and which order it is in.

    Scores are compared within a row, part and order.
    """

    row: int
    part: int
    order: int
    group: Group


@dataclass(frozen=True, slots=True)
class ProbeScores:
    """Decisions of a judge between references and copies damaged by one probe; intervals are at 95 %, over rows.

    `right` is the share of decided pairs in which the reference scores higher, ties as half, and `margin` the mean of
    its score minus the other's, None where nothing was decided. A row is `refused` where a guard showed the judge no
    damaged copy in any order, `unscored` where it gave no two scores for another reason.
    """

    right: Interval | None
    margin: Interval | None
    tied: float | None
    decided: int
    refused: int
    unscored: int
    not_applicable: int


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The scores of each probe by language pair and for all, and what the judge does whatever the probe.

    `first_wins` is the share of pairs won by the candidate that is shown first, ties as half: 0.5 without position
    bias. `order_consistency` is the share of pairs decided alike in both orders, `length_correlation` that of scores
    with characters within groups, `tied` the share of pairs with equal scores; None where nothing was measured.
    Intervals resample rows.
    """

    probes: dict[str, dict[str, ProbeScores]]
    first_wins: Interval | None
    order_consistency: Interval | None
    length_correlation: Interval | None
    tied: float | None
    statuses: dict[str, int]

    def weakest(self) -> tuple[str, ProbeScores] | None:
        """The probe with the lowest share of right decisions, among those decided on `MIN_ROWS` rows; None without.

        Those whose interval lies below chance come first.
        """
        decided = [
            (right.high >= CHANCE, right.mean, name)
            for name, scores in self.probes.items()
            if (right := scores[ALL].right) is not None and scores[ALL].decided >= MIN_ROWS
        ]
        name = min(decided)[-1] if decided else None
        return None if name is None else (name, self.probes[name][ALL])

    def verdict(self) -> str:
        """One line: the damage that a policy would be rewarded for first, or that none is below chance."""
        weakest = self.weakest()
        if weakest is None:
            return f"too few decided pairs for a verdict: it takes {MIN_ROWS} rows of a probe"
        name, scores = weakest
        right, margin = scores.right, scores.margin
        assert right is not None
        assert margin is not None
        share = f"{right.mean:.3f} (95 % from {right.low:.3f} to {right.high:.3f})"
        figures = f"{name}, right in {share} of {scores.decided} rows, mean margin {margin.mean:+.2f} points"
        if right.high < CHANCE:
            return f"a policy would exploit first: {figures}"
        return f"none of these is below chance; the weakest: {figures}"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"verdict": self.verdict(), **asdict(self)}


def probe_groups(
    chosen: DamagedRows,
    *,
    size: int = 2,
    both_orders: bool = True,
    apart: bool = False,
    shows_reference: bool = False,
    seed: int = 0,
) -> list[ProbeGroup]:
    """Make groups of the reference and up to `size` - 1 damaged copies, in a seeded order and in its reverse.

    A group of two is a pair. A larger one that lacks copies is filled up with others of the row that do not count, as
    a judge may know one size only. A row's samples stand in each of its groups, beside `size`.

    With `apart` the reference and each copy have a group of their own, with the samples and nothing else; without
    `both_orders` there is no reverse. With `shows_reference` the judge gets the reference as such, too.
    """
    groups = []
    for number, (row, texts) in enumerate(chosen.rows):
        rng = random.Random(f"{seed}/{number}")
        task = TranslationTask(row.source, row.src_lang, row.trg_lang, row.reference if shows_reference else None)
        names = rng.sample(sorted(texts), len(texts))
        if apart:
            parts = [(0, {name: text}) for name, text in {REFERENCE: row.reference, **texts}.items()]
        else:
            starts = range(0, len(names), size - 1)
            parts = [(start, _filled(row, texts, names[start : start + size - 1], size, seed, rng)) for start in starts]
        for k, (part, shown) in enumerate(parts):
            shown |= {f"sample {n}": text for n, text in enumerate(row.samples)}
            order = rng.sample(list(shown.items()), len(shown))
            for n, items in enumerate([order, order[::-1]] if both_orders else [order]):
                candidates = tuple(Candidate(name, text, text) for name, text in items)
                groups.append(ProbeGroup(number, part, n, Group(f"{number}/{k}/{n}", task, candidates)))
    return groups


def _filled(
    row: ProbeRow, texts: Mapping[str, str], names: Sequence[str], size: int, seed: int, rng: random.Random
) -> dict[str, str]:
    """The reference and the texts of `names` by id, and other damages of the row up to `size`."""
    shown = {REFERENCE: row.reference} | {name: texts[name] for name in names}
    for name in rng.sample(sorted(PROBES.keys() - {*names}), len(PROBES) - len(names)):
        text = damaged(name, row, seed) if len(shown) < size else None
        if text is not None and text not in shown.values():
            shown[f"beside: {name}"] = text
    return shown


@dataclass(frozen=True, slots=True)
class _Pair:
    """A reference and a damaged copy: the margin between them, None without two scores, and the copy's status.

    `reference_is_first` is None where they are in different groups.
    """

    row: int
    probe: str
    margin: float | None
    status: Status
    reference_is_first: bool | None


def measure(
    chosen: DamagedRows,
    groups: Sequence[ProbeGroup],
    verdicts: Sequence[Verdict],
    n_resamples: int = 1000,
    seed: int = 0,
) -> ProbeReport:
    """Count what the judge decided of the groups that `probe_groups` made of the `chosen` rows.

    A pair without two scores is counted, never taken for a decision.
    """
    draws = {"n_resamples": n_resamples, "seed": seed}
    pairs = _pairs(groups, verdicts)
    by_probe: dict[str, dict[int, list[_Pair]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        by_probe[pair.probe][pair.row].append(pair)
    languages = [language_pair(row.src_lang, row.trg_lang) for row, _ in chosen.rows]
    scores: dict[str, dict[str, ProbeScores]] = {}
    for name, not_applicable in chosen.not_applicable.items():
        rows = by_probe[name]
        scores[name] = {
            of_pair: _scores([rows[n] for n in rows if languages[n] == of_pair], not_applicable[of_pair], draws)
            for of_pair in sorted({*languages, *not_applicable})
        }
        scores[name][ALL] = _scores([*rows.values()], not_applicable.total(), draws)
    decided = [pair for pair in pairs if pair.margin is not None]
    lengths = [
        JudgedGroup("", [float(len(c.translation or "")) for c in probed.group.candidates], verdict.scores)
        for probed, verdict in zip(groups, verdicts, strict=True)
    ]
    return ProbeReport(
        scores,
        _over_rows([(pair.row, _first_wins(pair)) for pair in decided if pair.reference_is_first is not None], draws),
        _over_rows(_consistent(decided), draws),
        correlation(lengths, rows=[probed.row for probed in groups], **draws),
        fmean(pair.margin == 0 for pair in decided) if decided else None,
        dict(sorted(Counter(status.value for verdict in verdicts for status in verdict.statuses).items())),
    )


def _pairs(groups: Sequence[ProbeGroup], verdicts: Sequence[Verdict]) -> list[_Pair]:
    members: dict[tuple[int, int, int], dict[str, tuple[str, int, float | None, Status]]] = defaultdict(dict)
    for probed, verdict in zip(groups, verdicts, strict=True):
        of_part = members[probed.row, probed.part, probed.order]
        columns = zip(probed.group.candidates, verdict.scores, verdict.statuses, strict=True)
        for position, (candidate, score, status) in enumerate(columns):
            of_part[candidate.candidate_id] = (probed.group.group_id, position, score, status)
    pairs = []
    for (row, *_), of_part in members.items():
        group, first, of_reference, _ = of_part[REFERENCE]
        for name in filter(PROBES.__contains__, of_part):
            own_group, position, score, status = of_part[name]
            margin = None if score is None or of_reference is None else of_reference - score
            pairs.append(_Pair(row, name, margin, status, first < position if group == own_group else None))
    return pairs


def _scores(by_row: Sequence[Sequence[_Pair]], not_applicable: int, draws: Mapping[str, int]) -> ProbeScores:
    """The scores of one probe on some rows, each with its pairs: one an order."""
    margins = [[pair.margin for pair in pairs if pair.margin is not None] for pairs in by_row]
    decided = [of_row for of_row in margins if of_row]
    refused = sum(all(pair.status in REFUSALS for pair in pairs) for pairs in by_row)
    return ProbeScores(
        bootstrap_interval([fmean(map(_credit, of_row)) for of_row in decided], **draws) if decided else None,
        bootstrap_interval([fmean(of_row) for of_row in decided], **draws) if decided else None,
        fmean(margin == 0 for of_row in decided for margin in of_row) if decided else None,
        len(decided),
        refused,
        len(by_row) - len(decided) - refused,
        not_applicable,
    )


def _credit(margin: float) -> float:
    return 0.5 if margin == 0 else float(margin > 0)


def _first_wins(pair: _Pair) -> float:
    credit = _credit(pair.margin or 0.0)
    return credit if pair.reference_is_first else 1 - credit


def _consistent(decided: Sequence[_Pair]) -> list[tuple[int, float]]:
    """For each pair that was decided in two orders, its row, and 1 if alike."""
    credits: dict[tuple[int, str], list[float]] = defaultdict(list)
    for pair in decided:
        credits[pair.row, pair.probe].append(_credit(pair.margin or 0.0))
    return [(row, float(len({*values}) == 1)) for (row, _), values in credits.items() if len(values) > 1]


def _over_rows(values: Sequence[tuple[int, float]], draws: Mapping[str, int]) -> Interval | None:
    """The mean of values that come with their rows, whole rows resampled."""
    sums: dict[int, list[float]] = defaultdict(list)
    for row, value in values:
        sums[row].append(value)
    return bootstrap_ratio([*map(sum, sums.values())], [*map(len, sums.values())], **draws) if sums else None
