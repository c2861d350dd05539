"""A judge without model and reference: the agreement of a translation with the other samples of its group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from grrm.gqm.groups import Group, Status, Verdict, tiers_of
from grrm.judges.dedup import dedup_texts, expand_to_duplicates
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge
from grrm.judges.text_metric import sentence_metric

Numbers = npt.NDArray[np.int64]
AgreementTable = list[list[float]]  # [i][j]: the metric (0 to 100) of text i with text j as its reference
CHRF_ORDER, CHRF_BETA = 6, 2  # as in sacrebleu's "chrf"
COLUMNS = 2**12  # n-grams compared at a time


@judge("consensus", help="agreement with the other samples")
class ConsensusOptions(JudgeOptions):
    """The metric of the agreement."""

    metric: str = "chrf"

    def open(self, process: Process) -> Judge:
        """Open the judge. Raises UserError as `ConsensusJudge`."""
        return ConsensusJudge(self.metric)


@dataclass
class ConsensusJudge:
    """Scores 0 to 10: a candidate's mean sentence metric against each other sample of its group, divided by 10.

    With n usable candidates x_1 to x_n, score_i = sum over j != i of metric(x_i, reference x_j) / (10 (n - 1)): the
    expected utility of minimum Bayes risk decoding (Eikema and Aziz 2020) with the group as its samples.

    Copies are samples too, so a text sampled twice agrees with itself. Candidates without a translation are ignored. A
    group with one usable candidate gets the status SINGLE_CANDIDATE. `metric` is one of `METRICS`. Raises UserError on
    an unknown metric or when its package is not installed.
    """

    metric: str = "chrf"
    name: str = field(default="consensus", init=False)

    def __post_init__(self) -> None:
        sentence_metric(self.metric, "en")

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept; distinct texts are compared once, whatever their copies."""
        return [self._judge_group(group) for group in groups]

    def _judge_group(self, group: Group) -> Verdict:
        distinct = dedup_texts(group)
        counts = [len(positions) for positions in distinct.members]
        if sum(counts) < 2:
            return expand_to_duplicates(group, distinct, [Status.SINGLE_CANDIDATE] * len(counts))
        table = agreement_table(self.metric, group.task.trg_lang, distinct.texts)
        # Rounding in the metric can exceed 100 by an ulp or two.
        scores = [min(10.0, mean / 10) for mean in mean_agreements(table, counts)]
        return expand_to_duplicates(group, distinct, scores, tiers=tiers_of(scores) or None)


def mean_agreements(table: AgreementTable, counts: Sequence[int]) -> list[float]:
    """Each distinct text's mean metric against the other samples; `counts` says how many samples have the text."""
    n_others = sum(counts) - 1
    return [
        math.fsum(value * (count - (j == i)) for j, (value, count) in enumerate(zip(row, counts, strict=True)))
        / n_others
        for i, row in enumerate(table)
    ]


def agreement_table(metric: str, trg_lang: str, texts: Sequence[str]) -> AgreementTable:
    """The metric of each of the distinct `texts` against each, itself included."""
    if metric == "chrf":
        return chrf_table(texts)
    score = sentence_metric(metric, trg_lang)
    return [[score(text, other) for other in texts] for text in texts]


def chrf_table(texts: Sequence[str]) -> AgreementTable:
    """`agreement_table` with sacrebleu's sentence chrF (Popović 2015), the n-grams of a text counted once.

    chrF = 100 (1 + beta²) P R / (beta² P + R), P and R the means of precision and recall over the orders 1 to 6 that
    both texts have n-grams of; whitespace plays no part.
    """
    chars = grams = _numbered([_code_points("".join(text.split())) for text in texts])
    n_chars = 1 + max((int(of_text.max()) for of_text in chars if of_text.size), default=0)
    precisions, n_orders = np.zeros((len(texts), len(texts))), np.zeros((len(texts), len(texts)))
    for order in range(1, CHRF_ORDER + 1):
        if order > 1:  # an n-gram is a shorter one and a character
            longer = [gram[:-1] * n_chars + char[order - 1 :] for gram, char in zip(grams, chars, strict=True)]
            grams = _numbered(longer)
        sizes = np.array([len(of_text) for of_text in grams])
        precisions += _common(grams) / np.maximum(sizes, 1)[:, None]
        n_orders += np.outer(sizes > 0, sizes > 0)
    precisions /= np.maximum(n_orders, 1)
    recalls, factor = precisions.T, CHRF_BETA**2
    weighted = factor * precisions + recalls
    scores = 100 * (1 + factor) * precisions * recalls / np.where(weighted, weighted, 1)
    table: AgreementTable = scores.tolist()
    return table


def _code_points(text: str) -> Numbers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


def _numbered(of_texts: Sequence[Numbers]) -> list[Numbers]:
    """The same values as numbers from 0 on, so that products of them stay small."""
    _, numbers = np.unique(np.concatenate(of_texts), return_inverse=True)
    return np.split(numbers, np.cumsum([len(of_text) for of_text in of_texts])[:-1])


def _common(grams: Sequence[Numbers]) -> npt.NDArray[np.float64]:
    """[i, j]: how many n-grams the texts i and j have in common, repetitions counted."""
    rows = np.repeat(np.arange(len(grams)), [*map(len, grams)])
    _, columns, n_holders = np.unique(_occurrences(grams), return_inverse=True, return_counts=True)
    is_shared = n_holders[columns] > 1
    common = np.diag(np.bincount(rows[~is_shared], minlength=len(grams)).astype(np.float64))
    rows, columns = rows[is_shared], (np.cumsum(n_holders > 1) - 1)[columns[is_shared]]
    n_columns = 1 + columns.max(initial=-1)
    for start in range(0, n_columns, COLUMNS):
        within = (columns >= start) & (columns < start + COLUMNS)
        member = np.zeros((len(grams), min(COLUMNS, n_columns - start)), np.float32)  # its counts are exact
        member[rows[within], columns[within] - start] = 1
        common += member @ member.T
    return common


def _occurrences(grams: Sequence[Numbers]) -> Numbers:
    """The n-grams of all texts, sorted in each, those that a text repeats as different numbers.

    So the elements that two texts share are as many as their n-grams in common.
    """
    longest = 1 + max(map(len, grams))
    ordered = [np.sort(of_text) for of_text in grams]
    return np.concatenate(
        [row * longest + np.arange(len(row)) - np.searchsorted(row, row) for row in ordered], dtype=np.int64
    )
