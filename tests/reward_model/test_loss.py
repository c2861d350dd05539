"""The loss of reward models beside its formula, written as loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.models.value_head import CandidateGroup
from grrm.reward_model.loss import count_pairs, group_loss
from grrm.reward_model.trainer import RewardModelTrainer
from grrm.training.gold_groups import LEAST_DIFFERENCE, GoldGroup


def by_loops(scores, gold, weight):
    terms, squares, start = [], [], 0
    for group in gold:
        own, start = scores[start : start + len(group)], start + len(group)
        for s_i, g_i in zip(own, group, strict=True):
            for s_j, g_j in zip(own, group, strict=True):
                if g_i - g_j > LEAST_DIFFERENCE:
                    terms.append(math.log1p(math.exp(s_j - s_i)))
        score_mean, gold_mean = sum(own) / len(own), sum(group) / len(group)
        squares += [((s - score_mean) - (g - gold_mean)) ** 2 for s, g in zip(own, group, strict=True)]
    return (sum(terms) / len(terms) if terms else 0.0) + weight * sum(squares) / len(squares)


candidates = st.tuples(st.floats(-5, 5), st.integers(0, 1000).map(lambda n: n / 100))
groups_of_candidates = st.lists(st.lists(candidates, min_size=2, max_size=5), min_size=2, max_size=4)


def apart(groups):
    """The scores of all groups, and the gold of each."""
    return [score for group in groups for score, _ in group], [[one for _, one in group] for group in groups]


@settings(deadline=None, max_examples=60)
@given(groups=groups_of_candidates, weight=st.sampled_from([0, 0.2]))
def test_loss_is_its_formula(groups, weight):
    scores, gold = apart(groups)
    scores_R = paddle.to_tensor(scores, dtype="float32", stop_gradient=False)
    loss = group_loss(scores_R, gold, count_pairs(gold), squared_weight=weight)
    assert float(loss) == pytest.approx(by_loops(scores, gold, weight), rel=1e-4, abs=1e-5)
    loss.backward()
    assert np.isfinite(scores_R.grad.numpy()).all()


@settings(deadline=None, max_examples=30)
@given(groups=groups_of_candidates)
def test_losses_of_parts_add_up_to_that_of_all_groups(groups):
    counts = count_pairs(apart(groups)[1])

    def loss(some):
        scores, gold = apart(some)
        return float(group_loss(paddle.to_tensor(scores, dtype="float32"), gold, counts, squared_weight=0.2))

    assert loss(groups[:1]) + loss(groups[1:]) == pytest.approx(loss(groups), rel=1e-5, abs=1e-6)


def test_a_pair_of_nearly_equal_gold_counts_as_none():
    assert count_pairs([[3.0, 1.0, 1.02], [0.0, 2.0]]) == {"pairs": 3, "candidates": 5}


def test_another_number_of_scores_is_refused():
    with pytest.raises(ValueError, match="scores for 2 candidates"):
        group_loss(paddle.zeros([3]), [[1.0, 2.0]], {}, squared_weight=0.0)


@pytest.mark.parametrize(
    ("kind", "is_pair", "weight", "expected"),
    [
        ("ranker", False, None, 0.2),
        ("ranker", True, None, 0.0),
        ("pairwise", False, None, 0.0),
        ("pairwise", False, 0.7, 0.7),
        ("ranker", False, 0.0, 0.0),
    ],
)
def test_squared_errors_count_for_a_ranker_of_scored_groups_or_as_the_run_says(kind, is_pair, weight, expected):
    group = GoldGroup(CandidateGroup([1], [[2], [3]]), (2.0, 1.8), "en-de", is_pair)
    config = SimpleNamespace(reward_model=kind, squared_weight=weight)
    trainer = SimpleNamespace(config=config, _prepare_inputs=lambda inputs: inputs)
    scores_R, counts = paddle.to_tensor([1.5, 0.25]), RewardModelTrainer.count(trainer, {"groups": [group]})
    assert counts == {"pairs": 1, "candidates": 2}  # gold is in units of the loss already
    loss = RewardModelTrainer.loss_share(trainer, scores_R, {"groups": [group]}, counts)
    assert float(loss) == pytest.approx(by_loops([1.5, 0.25], [group.gold], expected), rel=1e-6)
