"""Groups that people are asked to annotate: which, and what of them is shown."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median

import numpy as np

from grrm.errors import UserError
from grrm.evaluation.candidate_pairs import Scores, pair_differences, score_array

Opinions = Mapping[str, Scores]  # of each judge, or of a judge in each order, a score or None per candidate
PICTURES = ("<audio ", "<video ", "<img ", "<iframe ")  # Pearmut hands a text that begins so to the browser as HTML


@dataclass(frozen=True, slots=True)
class Segment:
    """A source that comes before in its document, and its reference, which may be empty."""

    src_text: str
    trg_text: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A source with its different candidates, what judges say of them, and where in a document it stands."""

    group_id: str
    src_text: str
    trg_text: str | None
    src_lang: str
    trg_lang: str
    mt_texts: tuple[str, ...]
    opinions: Opinions = field(default_factory=dict)
    document: str | None = None
    position: float | None = None
    context: tuple[Segment, ...] = ()


def distinct(task: Task) -> Task | None:
    """The task with each text once and without empty ones; None with fewer than two, or one that Pearmut would run."""
    first = {text: at for at, text in reversed([*enumerate(task.mt_texts)]) if text.strip()}
    selected = sorted(first.values())
    if len(selected) < 2 or any(text.startswith(PICTURES) for text in (task.src_text, *first)):
        return None
    return _of_candidates(task, selected)


def with_context(tasks: Sequence[Task], n_before: int) -> list[Task]:
    """Each task with up to `n_before` segments that come before it in its document, by position."""
    documents: dict[tuple[str, str, str], dict[float, Task]] = {}
    for task in tasks:
        if task.document is not None and task.position is not None:
            documents.setdefault((task.document, task.src_lang, task.trg_lang), {})[task.position] = task
    positions = {document: sorted(own) for document, own in documents.items()}
    tasks_in_context = []
    for task in tasks:
        document, context = (task.document or "", task.src_lang, task.trg_lang), tuple[Segment, ...]()
        if task.position is not None and (own := positions.get(document)):
            end = bisect_left(own, task.position)
            before = (documents[document][at] for at in own[max(end - n_before, 0) : end])
            context = tuple(Segment(other.src_text, other.trg_text or "") for other in before)
        tasks_in_context.append(replace(task, context=context))
    return tasks_in_context


def choose(tasks: Sequence[Task], n_groups: int, group_size: int, *, by: str, seed: int) -> list[Task]:
    """At most `n_groups` tasks of at most `group_size` candidates in random order, by document and position.

    `by` is "disagreement", see `informative`, or "random". Raises UserError where no judge has scored two candidates of
    a group, for disagreement.
    """
    draw = random.Random(seed)
    shown = [_of_candidates(task, draw.sample(range(n := len(task.mt_texts)), min(n, group_size))) for task in tasks]
    order = draw.sample(range(len(shown)), len(shown))
    if by == "disagreement":
        worth = informative([task.opinions for task in shown])
        order = sorted((at for at in order if worth[at] is not None), key=lambda at: -(worth[at] or 0.0))
        if not order:
            raise UserError("no judge scored two candidates of a group; rank them first, or give --choose random")
    chosen = [(shown[at], at) for at in order[:n_groups]]
    chosen.sort(key=lambda task: (task[0].document or "", task[0].position or 0.0, task[1]))
    return [task for task, _ in chosen]


def informative(groups: Sequence[Opinions]) -> list[float | None]:
    """The disagreement of judges about each group from 0 to 1, None where no two candidates have scores.

    With several opinions: the share of pairs of candidates that two of them order differently, a tie being half, mean
    over pairs of opinions. With one: how little it tells candidates apart, the mean over pairs of 4 p (1 - p), p being
    the logistic function of the difference of scores over the median distance in all groups.
    """
    differences = [
        [
            pair_differences(score_array([scores]))[0]
            for scores in opinions.values()
            if len(scores) - scores.count(None) > 1
        ]
        for opinions in groups
    ]
    distances = [abs(value) for own in differences for opinion in own for value in opinion if not np.isnan(value)]
    unit = (median(distances) if distances else 0.0) or 1.0
    worth: list[float | None] = []
    for own in differences:
        if len(own) > 1:
            values = [0.5 * abs(np.sign(first) - np.sign(second)) for first, second in combinations(own, 2)]
        else:
            values = [1 - np.tanh(opinion / unit / 2) ** 2 for opinion in own]
        defined = [value for opinion in values for value in opinion if not np.isnan(value)]
        worth.append(float(np.mean(defined)) if defined else None)
    return worth


def _of_candidates(task: Task, selected: Iterable[int]) -> Task:
    order = list(selected)
    opinions = {name: [scores[at] for at in order] for name, scores in task.opinions.items()}
    return replace(task, mt_texts=tuple(task.mt_texts[at] for at in order), opinions=opinions)
