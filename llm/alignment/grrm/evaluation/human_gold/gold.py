"""Translations of several systems with people's scores: one language pair, a row per source, a column per system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grrm.evaluation.candidate_pairs import Floats, ratio
from grrm.gqm.groups import Candidate, Group, TranslationTask


@dataclass(frozen=True, slots=True)
class HumanGold:
    """The test set of a language pair: scores [P, G] are NaN where there is none, outputs [P][G] None.

    `annotators` has each person's own scores where there are several, `scores` those of judges that came with it.
    """

    origin: str
    src_lang: str
    trg_lang: str
    sources: Sequence[str]
    references: Sequence[str | None]
    domains: Sequence[str | None]
    systems: Sequence[str]
    outputs: Sequence[Sequence[str | None]]
    gold_PG: Floats
    annotators: Mapping[str, Floats] = field(default_factory=dict)
    scores: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def language_pair(self) -> str:
        """Source and target language, as in `en-de`."""
        return f"{self.src_lang}-{self.trg_lang}"

    def record(self) -> dict[str, Any]:
        """The contents in numbers, as JSON."""
        rated = ~np.isnan(self.gold_PG)
        return {
            "origin": self.origin,
            "language_pair": self.language_pair,
            "systems": list(self.systems),
            "sources": int(rated.any(axis=1).sum()),
            "scored_translations": int(rated.sum()),
            "annotators": sorted(self.annotators),
        }

    def groups(self) -> list[Group]:
        """All translations of a source as the group that a judge sees, sources without gold left out.

        A group is called by its row, a candidate by its column.
        """
        rated = ~np.isnan(self.gold_PG)
        return [
            Group(
                str(row),
                TranslationTask(self.sources[row], self.src_lang, self.trg_lang, self.references[row]),
                tuple(Candidate(str(at), text or "", text) for at, text in enumerate(self.outputs[row])),
            )
            for row in np.flatnonzero(rated.any(axis=1)).tolist()
        ]

    def judged(self, groups: Sequence[Group], scores: Sequence[Sequence[float | None]]) -> Floats:
        """The scores [P, G] of a judge of `groups`, NaN for what it did not score or see."""
        judged_PG = np.full(self.gold_PG.shape, np.nan)
        for group, of_group in zip(groups, scores, strict=True):
            judged_PG[int(group.group_id)] = [np.nan if score is None else score for score in of_group]
        return judged_PG


def mean_scores(several: Sequence[Floats]) -> Floats:
    """The mean of scores of the same shape, of those that are there; NaN where none is."""
    stacked = np.stack(several)
    return ratio(np.nansum(stacked, axis=0), (~np.isnan(stacked)).sum(axis=0))
