"""A judge without model and reference: the agreement of a translation with the other samples of its group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from grrm.gqm.groups import Group, Status, Verdict, tiers_of
from grrm.judges.dedup import dedup_texts, expand_to_duplicates
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge
from grrm.judges.text_metric import sentence_metric

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
    grams = [_occurrences("".join(text.split())) for text in texts]
    precisions, n_orders = np.zeros((len(texts), len(texts))), np.zeros((len(texts), len(texts)))
    for of_texts in zip(*grams, strict=True):
        sizes = np.array([len(of_text) for of_text in of_texts])
        precisions += _common(of_texts) / np.maximum(sizes, 1)[:, None]
        n_orders += np.outer(sizes > 0, sizes > 0)
    precisions /= np.maximum(n_orders, 1)
    recalls, factor = precisions.T, CHRF_BETA**2
    weighted = factor * precisions + recalls
    scores = 100 * (1 + factor) * precisions * recalls / np.where(weighted, weighted, 1)
    table: AgreementTable = scores.tolist()
    return table


def _occurrences(text: str) -> list[set[object]]:
    """For each order, the text's n-grams as a set; a repeated one stands in it with the number of its occurrence.

    Two such sets have in common as many elements as the texts share n-grams, repetitions counted.
    """
    grams: list[set[object]] = []
    for order in range(1, CHRF_ORDER + 1):
        counts = Counter(text[start : start + order] for start in range(len(text) - order + 1))
        repeated = ((gram, number) for gram, count in counts.items() for number in range(1, count))
        grams.append({*counts, *repeated})
    return grams


def _common(sets: Sequence[set[object]]) -> npt.NDArray[np.float64]:
    """[i, j]: how many elements the sets i and j have in common."""
    holders = Counter(chain.from_iterable(sets))
    shared = (element for element, n_holders in holders.items() if n_holders > 1)
    column_of = {element: column for column, element in enumerate(shared)}
    held = [[column_of[element] for element in elements if element in column_of] for elements in sets]
    columns, rows = (
        np.array(list(chain.from_iterable(held)), np.int64),
        np.repeat(np.arange(len(sets)), [*map(len, held)]),
    )
    common = np.diag([float(len(elements) - len(of_set)) for elements, of_set in zip(sets, held, strict=True)])
    for start in range(0, len(column_of), COLUMNS):
        within = (columns >= start) & (columns < start + COLUMNS)
        member = np.zeros((len(sets), min(COLUMNS, len(column_of) - start)), np.float32)  # its counts are exact
        member[rows[within], columns[within] - start] = 1
        common += member @ member.T
    return common
