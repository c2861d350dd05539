"""Titles of rows in the published tables, in their order."""

from __future__ import annotations

from dataclasses import dataclass

POLICIES = {
    "base": "untrained",
    "sft": "SFT",
    "grpo": "GRPO, metric",
    "grpo_consensus": "GRPO, consensus",
    "grpo_ranker": "GRPO, ranker",
}
README = {
    "README.md": {
        "sft": "SFT | ",
        "grpo": "GRPO | chrF against the reference",
        "grpo_gqm_sft": "GRPO | GQM: a group judge that writes scores, no reference",
    },
    "README_zh.md": {
        "sft": "SFT | ",
        "grpo": "GRPO | 对照参考译文的 chrF",
        "grpo_gqm_sft": "GRPO | GQM：写出分数的组裁判，不看参考译文",
    },
}
REAL_POLICIES = {
    "sft": "none: SFT",
    "grpo": "chrF",
    "grpo_gqm_sft": "GQM",
    "grpo_gqm_orders": "GQM, 4 orders",
    "grpo_ranker": "ranker",
    "grpo_consensus": "consensus",
}
REAL_WITHOUT_LENGTH = {
    "sft": "none: SFT",
    "chrf_length_neutral": "chrF",
    "gqm_length_neutral": "GQM",
    "mixture_length_neutral": "GQM and consensus",
    "consensus_length_neutral": "consensus",
}  # of seed 3
REAL_SHORT = {  # of seed 4, whose stages are shorter
    "sft": "none: SFT",
    "grpo": "chrF",
    "grpo_sqm": "SQM",
    "grpo_gqm_sft": "GQM after SFT",
    "grpo_gqm": "GQM after RLVR",
}
REAL_SEEDS = {"grpo": "chrF", "grpo_gqm_sft": "GQM", "grpo_ranker": "ranker"}  # those that have two
REAL_JUDGES = {
    "consensus": "consensus",
    "logprob": "the policy's own log-probability",
    "ranker_none": "ranker, each candidate by itself",
    "ranker_group": "ranker, candidates compared",
    "rm": "pairwise reward model, seed 3",
    "sqm": "SQM, scores as written",
    "sqm_expected": "the same, expected scores",
    "gqm_sft": "GQM after SFT, scores as written",
    "gqm_sft_expected": "the same, expected scores",
    "gqm_sft_permuted": "the same, mean of 4 orders",
    "gqm": "GQM after RLVR, scores as written",
    "gqm_expected": "the same, expected scores",
}
JUDGES = {
    "consensus": "consensus",
    "ranker_none": "ranker, each candidate by itself",
    "ranker_group": "ranker, candidates compared",
}


@dataclass(frozen=True, slots=True)
class Probed:
    """A judge of real_probes.json: its column on the page, and the policy of real_policies.json that learns from it."""

    title: str
    arm: str = ""


PROBED = {
    "embedding_qe": Probed("embedder"),
    "logprob": Probed("log-p"),
    "ranker": Probed("ranker", "grpo_ranker"),
    "ranker_group": Probed("comparing ranker"),
    "gqm": Probed("GQM", "grpo_gqm_sft"),
    "gqm_orders": Probed("GQM, 4 orders", "grpo_gqm_orders"),
    "consensus": Probed("consensus, apart", "grpo_consensus"),
    "consensus_pairs": Probed("consensus, pairs"),
    "chrf": Probed("chrF", "grpo"),
}
STUDIED = {
    "chrf": "chrF",
    "logprob": "log-p of SFT",
    "ranker_none": "ranker",
    "ranker_group": "comparing ranker",
    "consensus": "consensus",
    "gqm": "GQM",
    "embedding_qe": "embedder",
    "embedding_std": "the same, advantages normalised",
}  # the judges of probe_study.json and probe_study_human.json
