"""The loss of reward models beside its formula, written as loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.models.reward_models import CandidateGroup
from grrm.reward_model.loss import count_pairs, group_loss
from grrm.reward_model.trainer import RewardModelTrainer
from grrm.training.gold_groups import LEAST_DIFFERENCE, GoldGroup

NAN = float("nan")


def by_loops(scores, gold, sizes, unit, weight):
    terms, squares, start = [], [], 0
    for size in sizes:
        members = [i for i in range(start, start + size) if not math.isnan(gold[i])]
        start += size
        for i in members:
            for j in members:
                if gold[i] / unit - gold[j] / unit > LEAST_DIFFERENCE:
                    terms.append(math.log1p(math.exp(scores[j] - scores[i])))
        if len(members) > 1:
            score_mean = sum(scores[i] for i in members) / len(members)
            gold_mean = sum(gold[i] for i in members) / len(members)
            squares += [((scores[i] - score_mean) - (gold[i] - gold_mean) / unit) ** 2 for i in members]
    return (sum(terms) / len(terms) if terms else 0.0) + weight * (sum(squares) / len(squares) if squares else 0.0)


numbers = st.integers(0, 1000).map(lambda n: n / 10)
candidates = st.tuples(st.floats(-5, 5), st.one_of(numbers, st.just(NAN)))


@settings(deadline=None, max_examples=60)
@given(
    groups=st.lists(st.lists(candidates, min_size=1, max_size=5), min_size=1, max_size=4),
    weight=st.sampled_from([0, 0.2]),
)
def test_loss_is_its_formula(groups, weight):
    scores = [score for group in groups for score, _ in group]
    gold = [one for group in groups for _, one in group]
    sizes = [len(group) for group in groups]
    scores_R = paddle.to_tensor(scores, dtype="float32", stop_gradient=False)
    loss = group_loss(scores_R, gold, sizes, squared_weight=weight)
    assert float(loss) == pytest.approx(by_loops(scores, gold, sizes, 10.0, weight), rel=1e-4, abs=1e-5)
    loss.backward()
    assert np.isfinite(scores_R.grad.numpy()).all()
    assert not scores_R.grad.numpy()[np.isnan(gold)].any()


@settings(deadline=None, max_examples=30)
@given(groups=st.lists(st.lists(candidates, min_size=1, max_size=5), min_size=2, max_size=4))
def test_losses_of_parts_add_up_to_that_of_all_groups(groups):
    gold, sizes = [one for group in groups for _, one in group], [len(group) for group in groups]
    counts = count_pairs(gold, sizes)

    def loss(some, **denominators):
        scores_R = paddle.to_tensor([score for group in some for score, _ in group], dtype="float32")
        return float(
            group_loss(scores_R, [one for group in some for _, one in group], [*map(len, some)], **denominators)
        )

    parts = [loss(some, denominators=counts) for some in (groups[:1], groups[1:])]
    assert sum(parts) == pytest.approx(loss(groups), rel=1e-5, abs=1e-6)


def test_losses_of_parts_add_up_by_the_counts_of_the_batch():
    scores, gold, sizes = [1.5, -0.5, 0.25, 2.0, 0.0, 1.0, -1.0], [3.0, 1.0, 1.02, 0.0, 2.0, NAN, 5.0], [3, 2, 1, 1]
    counts = count_pairs(gold, sizes, gold_unit=1.0)
    assert counts == {"pairs": 3, "candidates": 5}  # a pair of nearly equal gold is none; nor is one candidate
    parts, start = [], 0
    for size in sizes:
        part = slice(start, start + size)
        start += size
        settings = {"gold_unit": 1.0, "squared_weight": 0.3, "denominators": counts}
        parts.append(float(group_loss(paddle.to_tensor(scores[part]), gold[part], [size], **settings)))
    assert sum(parts) == pytest.approx(by_loops(scores, gold, sizes, 1.0, 0.3), rel=1e-5)
    assert parts[2:] == [0.0, 0.0]


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="groups of 3"):
        group_loss(paddle.zeros([2]), [1.0, 2.0], [3])
    with pytest.raises(ValueError, match="scores"):
        group_loss(paddle.zeros([3]), [1.0, 2.0], [2])


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
    assert float(loss) == pytest.approx(by_loops([1.5, 0.25], group.gold, [2], 1.0, expected), rel=1e-6)
