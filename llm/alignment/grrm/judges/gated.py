"""A judge behind gates: candidates that fail a gate are not judged and get the gate's status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from grrm.gqm.groups import Group, PartVerdict, Status, Verdict
from grrm.judges.interface import Judge
from grrm.rewards.gates import Gates

Part = TypeVar("Part", Verdict, PartVerdict)


@dataclass
class GatedJudge:
    """`inner` on the candidates that pass `gates`; the others are passed to it without a translation."""

    inner: Judge
    gates: Gates
    name: str = field(init=False)  # that of the judge behind the gates

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Equal texts of a group are checked once."""
        faults = [self._faults(group) for group in groups]
        shown = [without_faulty(group, of_group) for group, of_group in zip(groups, faults, strict=True)]
        verdicts = self.inner.judge(shown)
        return [
            with_faults(group, verdict, of_group)
            for group, verdict, of_group in zip(groups, verdicts, faults, strict=True)
        ]

    def _faults(self, group: Group) -> dict[int, Status]:
        texts = {candidate.translation for candidate in group.candidates}
        of_text = {text: None if text is None else self.gates.fault(group.task, text) for text in texts}
        by_candidate = (of_text[candidate.translation] for candidate in group.candidates)
        return {i: fault for i, fault in enumerate(by_candidate) if fault is not None}


def without_faulty(group: Group, faults: Mapping[int, Status]) -> Group:
    """`group` without the texts of the candidates that have faults, by their index."""
    if not faults:
        return group
    candidates = tuple(
        replace(candidate, response="", translation=None) if i in faults else candidate
        for i, candidate in enumerate(group.candidates)
    )
    return replace(group, candidates=candidates)


def with_faults(group: Group, verdict: Verdict, faults: Mapping[int, Status]) -> Verdict:
    """`verdict` with the statuses of `faults` in place of scores, in its parts too."""
    if not faults:
        return verdict
    out = {group.candidates[i].candidate_id for i in faults}
    ranking = verdict.ranking and tuple(
        rest for tier in verdict.ranking if (rest := tuple(name for name in tier if name not in out))
    )
    replaced = _replaced(verdict, faults)
    return replace(replaced, ranking=ranking or None, parts=tuple(_replaced(part, faults) for part in verdict.parts))


def _replaced(verdict: Part, faults: Mapping[int, Status]) -> Part:
    statuses = tuple(faults.get(i, status) for i, status in enumerate(verdict.statuses))
    scores = tuple(None if i in faults else score for i, score in enumerate(verdict.scores))
    return replace(verdict, statuses=statuses, scores=scores)
