"""Scores that no judge of translations may be beaten by: of lengths, of the source alone; and text metrics.

Perrella et al. 2024 (arXiv 2408.13831) train sentinels that see the candidate or the source only, to show what a
meta-evaluation rewards by mistake. Those of this page need no training.
"""

from __future__ import annotations

import numpy as np

from grrm.evaluation.candidate_pairs import Floats
from grrm.evaluation.human_gold.gold import HumanGold
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
