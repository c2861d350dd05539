"""The card: a row for each judge, baseline, sentinel and for the annotators, in each language pair and domain.

Sentinels are scores that no judge may be beaten by: of lengths, of the source alone. Perrella et al. 2024 (arXiv
2408.13831) train theirs, to show what a meta-evaluation rewards by mistake; these need no training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from grrm.evaluation.candidate_pairs import CalibratedPairs, Floats, calibrated_pairs
from grrm.evaluation.human_gold.agreement import Agreement, agreement
from grrm.evaluation.human_gold.gold import HumanGold, mean_scores
from grrm.evaluation.soft_accuracy import p_values
from grrm.judges.consensus import ConsensusJudge
from grrm.judges.interface import Judge
from grrm.judges.text_metric import TextMetricJudge


def sentinel_scores(gold: HumanGold) -> dict[str, Floats]:
    """Scores [P, G] by name: none of them reads what a translation says.

    The length of the source and of the candidate in characters, shorter being better; and the ratio of the two,
    better the nearer its logarithm is to the median of the language pair.
    """
    sources = np.array([len(source) for source in gold.sources], dtype=np.float64)[:, None]
    candidates = np.array(
        [[np.nan if text is None else len(text) for text in row] for row in gold.outputs], dtype=np.float64
    ).reshape(gold.gold_PG.shape)
    ratio = np.log((candidates + 1) / (sources + 1))
    typical = np.nanmedian(ratio) if not np.isnan(ratio).all() else 0.0
    return {
        "source length": np.where(np.isnan(candidates), np.nan, -sources),
        "candidate length": -candidates,
        "length ratio": -np.abs(ratio - typical),
    }


def baseline_scores(gold: HumanGold) -> dict[str, Floats]:
    """Scores [P, G] of consensus and, where every source has a reference, of sentence chrF and BLEU."""
    judges: list[Judge] = [ConsensusJudge()]
    if all(reference and reference.strip() for reference in gold.references):
        judges += [TextMetricJudge("chrf"), TextMetricJudge("bleu")]
    groups = gold.groups()
    return {judge.name: gold.judged(groups, [verdict.scores for verdict in judge.judge(groups)]) for judge in judges}


SIGNIFICANCE = 0.05
_VALUES_PER_BLOCK = 1 << 23  # bounds the memory of the compared pairs


def significance_clusters(judges: Mapping[str, CalibratedPairs], *, n_permutations: int = 1000) -> dict[str, int]:
    """Return the cluster of each judge, from 1: no judge of a cluster is significantly better than another of it.

    Judges in the order of their accuracy; a new cluster begins with the first that any of the current cluster is better
    than with p <= 0.05, one-sided. The test permutes which of two judges gets which result on each pair of
    candidates, at the judges' own thresholds (Deutsch et al. 2021, arXiv 2104.00054; on pairs as mt-metrics-eval
    does), over the pairs that both scored.
    """
    ranked = sorted(judges, key=lambda name: -judges[name].accuracy)
    twos = [(better, worse) for at, better in enumerate(ranked) for worse in ranked[at + 1 :]]
    n_values = next(iter(judges.values())).right.size if judges else 1
    per_block = max(1, _VALUES_PER_BLOCK // n_values)
    p_of: dict[tuple[str, str], float] = {}
    for start in range(0, len(twos), per_block):
        block = twos[start : start + per_block]
        columns = np.stack([_differences(judges[better], judges[worse]) for better, worse in block], axis=1)
        informative = columns.any(axis=1)
        p_of |= dict(zip(block, p_values(columns[informative], n_permutations).tolist(), strict=True))
    clusters: dict[str, int] = {}
    current: list[str] = []
    for name in ranked:
        if any(p_of[better, name] <= SIGNIFICANCE for better in current):
            current = []
        current.append(name)
        clusters[name] = max(clusters.values(), default=0) + (len(current) == 1)
    return clusters


def _differences(better: CalibratedPairs, worse: CalibratedPairs) -> Floats:
    """Each pair's part [P * K] of the difference of the accuracies: 0 where either judge did not score it."""
    common = better.scored & worse.scored
    n_pairs = np.maximum(common.sum(axis=1, keepdims=True), 1)
    differences: Floats = np.where(common, (better.right.astype(np.float64) - worse.right) / n_pairs, 0.0)
    return differences.ravel()


Kind = Literal["judge", "baseline", "sentinel", "annotators"]
ANNOTATORS = "each against the others"
MEAN = "mean of language pairs"
METRICS = tuple(column.name for column in fields(Agreement) if column.name not in ("interval", "tie_threshold"))


@dataclass(frozen=True, slots=True)
class CardRow:
    """One line of the card; `domain` is None for all domains, `cluster` for what has no rank among judges."""

    language_pair: str
    domain: str | None
    name: str
    kind: Kind
    cluster: int | None
    agreement: Agreement

    def record(self) -> dict[str, Any]:
        """As JSON."""
        own = {"language_pair": self.language_pair, "domain": self.domain, "name": self.name, "kind": self.kind}
        return {**own, "cluster": self.cluster, **asdict(self.agreement)}


def card_rows(gold: HumanGold, judges: Mapping[str, Floats], *, n_resamples: int = 1000) -> list[CardRow]:
    """The rows of a language pair, best first, of all its sources and, with several, of each domain.

    `judges` has scores [P, G] by name; one that is called like a baseline stands instead of it.
    """
    baselines, sentinels = baseline_scores(gold), sentinel_scores(gold)
    scores = {**baselines, **sentinels, **judges}
    rated = ~np.isnan(gold.gold_PG).all(axis=1)
    domains = sorted({domain for domain, is_rated in zip(gold.domains, rated, strict=True) if domain and is_rated})
    rows = []
    for domain in [None, *(domains if len(domains) > 1 else ())]:
        chosen = np.array([domain is None or own == domain for own in gold.domains], dtype=bool)
        gold_PG = gold.gold_PG[chosen]
        pairs = {name: calibrated_pairs(gold_PG, own[chosen]) for name, own in scores.items()}
        clusters = significance_clusters(
            {name: own for name, own in pairs.items() if own is not None}, n_permutations=n_resamples
        )
        of_domain = [
            CardRow(
                gold.language_pair,
                domain,
                name,
                "judge" if name in judges else "baseline" if name in baselines else "sentinel",
                clusters.get(name),
                agreement(gold_PG, own[chosen], n_resamples=n_resamples, pairs=pairs[name]),
            )
            for name, own in scores.items()
        ]
        rows += sorted(of_domain, key=_best_first)
        annotators = {name: own[chosen] for name, own in gold.annotators.items()}
        if ceiling := annotators_agreement(annotators, n_resamples=n_resamples):
            rows.append(CardRow(gold.language_pair, domain, ANNOTATORS, "annotators", None, ceiling))
    return rows


def annotators_agreement(annotators: Mapping[str, Floats], *, n_resamples: int = 1000) -> Agreement | None:
    """Mean over annotators of the agreement of each with the mean of all others: what a judge can reach.

    Only what another annotator scored too counts, and each metric is of the annotators for whom it is defined. None
    with fewer than two annotators.
    """
    several = []
    for name, own in annotators.items():
        others = [scores for other, scores in annotators.items() if other != name]
        rest = mean_scores(others) if others else np.full(own.shape, np.nan)
        if not np.isnan(own + rest).all():
            several.append(agreement(rest, own, n_resamples=n_resamples))
    return mean_agreement(several, of_all=False) if several else None


def mean_rows(rows: Sequence[CardRow]) -> list[CardRow]:
    """The mean over language pairs of each judge that every pair has; empty where there is one pair."""
    overall = [row for row in rows if row.domain is None]
    n_pairs = len({row.language_pair for row in overall})
    by_name: dict[str, list[CardRow]] = {}
    for row in overall:
        by_name.setdefault(row.name, []).append(row)
    means = [
        replace(same[0], language_pair=MEAN, cluster=None, agreement=mean_agreement([row.agreement for row in same]))
        for same in by_name.values()
        if len(same) == n_pairs > 1
    ]
    return sorted(means, key=lambda row: (row.kind == "annotators", _best_first(row)))


def mean_agreement(several: Sequence[Agreement], *, of_all: bool = True) -> Agreement:
    """The mean of every metric, None where it is undefined for any, or with `of_all` False for each, of the several.

    Intervals and thresholds have no mean.
    """
    means: dict[str, Any] = dict.fromkeys(column.name for column in fields(Agreement))
    for name in METRICS:
        values = [getattr(agreed, name) for agreed in several]
        defined = [value for value in values if value is not None]
        if len(defined) == len(values) or (defined and not of_all):
            means[name] = float(np.mean(defined))
    return Agreement(**means)


def _best_first(row: CardRow) -> float:
    return -(row.agreement.tie_calibrated_accuracy or 0.0)
