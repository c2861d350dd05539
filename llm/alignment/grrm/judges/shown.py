"""What judges that wrap a judge share: showing it some of a group's translations, and reading its verdict by text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.gqm.rankings import Tiers
from grrm.judges.distinct import DistinctCandidates
from grrm.judges.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """A verdict by translation shown: `outcomes[k]` is the score of text k, or the status of its absence.

    `tiers` ranks such k, best first, None where the judge gave no ranking.
    """

    outcomes: dict[int, Outcome]
    tiers: Tiers | None
    analysis: str
    attempts: int

    @property
    def scores(self) -> dict[int, float]:
        """The scores alone."""
        return {k: outcome for k, outcome in self.outcomes.items() if not isinstance(outcome, Status)}


def show(group: Group, distinct: DistinctCandidates, order: Sequence[int]) -> Group:
    """The group with the translations `order` of `distinct`, each by its first member, and nothing else."""
    return Group(group.group_id, group.task, tuple(group.candidates[distinct.members[k][0]] for k in order))


def read_shown(shown: Group, verdict: Verdict, order: Sequence[int]) -> TextVerdict:
    """The verdict on `show(group, distinct, order)`, by index into the translations of `distinct`."""
    by_id = {candidate.candidate_id: k for candidate, k in zip(shown.candidates, order, strict=True)}
    outcomes: dict[int, Outcome] = {
        k: status if score is None else score
        for k, status, score in zip(order, verdict.statuses, verdict.scores, strict=True)
    }
    tiers = None if verdict.ranking is None else tuple(tuple(by_id[name] for name in tier) for tier in verdict.ranking)
    return TextVerdict(outcomes, tiers, verdict.analysis, verdict.attempts)


def content_digest(task: TranslationTask, texts: Sequence[str], settings: str = "") -> str:
    """A name for a task, the translations in this order and the settings: equal only where all of these are."""
    content = [task.source, task.src_lang, task.trg_lang, task.reference, list(texts), settings]
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()


def labelled(shown: Group, analysis: str) -> str:
    """An analysis under a line that names the candidates in the order in which its judge saw them."""
    ids = ", ".join(candidate.candidate_id for candidate in shown.candidates)
    return f"[candidates shown: {ids}]\n{analysis}" if analysis else ""
