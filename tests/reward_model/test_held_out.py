"""Numbers of an evaluation, counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grrm.evaluation.ranking import JudgedGroup
from grrm.reward_model.trainer import MARGIN_EDGES, console_line, details, pair_margins, summary

GROUPS = [
    JudgedGroup("en-de", [3.0, 1.0, 1.0], [2.0, 0.0, 5.0]),
    JudgedGroup("de-en", [0.0, 1.0], [-1.0, 0.5]),
]


def test_margin_is_the_better_ones_lead_over_pairs_of_different_gold() -> None:
    assert sorted(pair_margins(GROUPS)) == [-3.0, 1.5, 2.0]


def test_summary() -> None:
    found = summary(GROUPS, 0.7)
    assert found["eval_loss"] == 0.7
    assert found["eval_pair_accuracy"] == pytest.approx(2 / 3)
    assert found["eval_margin"] == pytest.approx(0.5 / 3)
    gold = [one - np.mean(group.gold) for group in GROUPS for one in group.gold]
    judged = [one - np.mean(group.judged) for group in GROUPS for one in group.judged]
    assert found["eval_correlation"] == pytest.approx(np.corrcoef(gold, judged)[0, 1])
    assert found["eval_correlation_low"] <= found["eval_correlation"] <= found["eval_correlation_high"]
    assert "pairs in order 0.667 [" in console_line(2, found)


def test_details() -> None:
    found = details(GROUPS)
    counts = dict(zip([-math.inf, *MARGIN_EDGES], found["eval_margins"]["counts"], strict=True))
    assert {edge: n for edge, n in counts.items() if n} == {-3.0: 1, 1.5: 1, 2.0: 1}
    pairs = found["eval_language_pairs"]
    assert list(pairs) == ["de-en", "en-de"]
    assert (pairs["de-en"]["groups"], pairs["de-en"]["pairs"], pairs["de-en"]["pair_accuracy"]) == (1, 1, [1.0] * 3)
    assert pairs["en-de"]["pair_accuracy"][0] == 0.5


def test_what_is_not_defined_is_no_number() -> None:
    tied = [JudgedGroup("en-de", [1.0, 1.0], [0.0, 1.0])]
    found = summary(tied, 0.1)
    assert all(math.isnan(found[name]) for name in ("eval_pair_accuracy", "eval_correlation", "eval_margin"))
    assert details(tied)["eval_language_pairs"]["en-de"]["pair_accuracy"] is None
