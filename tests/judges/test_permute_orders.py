from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.gqm.groups import TranslationTask
from grrm.judges.permute import candidate_orders, kendall_tau_b, mean_agreement

TASK = TranslationTask("SRC", "de", "en")
TEXTS = st.lists(st.text(max_size=4), unique=True, max_size=7)


def orders_of(texts, n, **options):
    return candidate_orders(TASK, texts, n, **options)


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 8), st.booleans(), st.integers(0, 5))
def test_orders_are_different_permutations_as_many_as_asked_for_or_all(texts, n, shuffle, seed):
    orders = orders_of(texts, n, shuffle=shuffle, seed=seed)
    assert len(set(orders)) == len(orders) == min(n, math.factorial(len(texts)))
    assert all(sorted(order) == list(range(len(texts))) for order in orders)
    assert orders == orders_of(texts, n, shuffle=shuffle, seed=seed)


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_a_text_stands_at_the_same_place_however_the_samples_came_in(texts, n, random):
    shuffled = random.sample(texts, len(texts))
    seen = [[texts[k] for k in order] for order in orders_of(texts, n)]
    assert seen == [[shuffled[k] for k in order] for order in orders_of(shuffled, n)]


@pytest.mark.parametrize("n", [2, 4, 6])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_even_number_of_orders_favours_no_candidate(n, shuffle):
    orders = orders_of(list("abcde"), n, shuffle=shuffle)
    for i, k in combinations(range(5), 2):
        assert sum(order.index(i) < order.index(k) for order in orders) == n / 2


def test_without_shuffle_the_first_order_is_the_one_given():
    assert orders_of(list("abcd"), 3, shuffle=False)[:2] == [(0, 1, 2, 3), (3, 2, 1, 0)]
    assert orders_of([], 3, shuffle=False) == [()]


def test_seed_task_and_texts_each_change_the_order():
    texts = list("abcdefghij")
    base = orders_of(texts, 1)
    assert base != orders_of(texts, 1, seed=1)
    assert base != candidate_orders(TranslationTask("other", "de", "en"), texts, 1)
    assert base != orders_of([*texts[:-1], "k"], 1)


def test_every_candidate_comes_first_about_equally_often():
    first = Counter(orders_of(list("abcd"), 1, seed=seed)[0][0] for seed in range(400))
    assert all(70 <= first[k] <= 130 for k in range(4))


def test_the_drawn_order_never_changes_between_versions():
    assert orders_of(list("abcde"), 3, seed=7) == [(1, 2, 3, 4, 0), (0, 4, 3, 2, 1), (3, 0, 4, 2, 1)]


SCORES = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=2, max_size=8)


def test_known_values():
    assert kendall_tau_b([1, 2, 3], [1, 2, 3]) == 1.0
    assert kendall_tau_b([1, 2, 3], [3, 2, 1]) == -1.0
    assert kendall_tau_b([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    # 2 concordant pairs; 3 pairs untied in the first, 2 in the second
    assert kendall_tau_b([1, 2, 3], [1, 2, 2]) == pytest.approx(2 / math.sqrt(6))


@pytest.mark.parametrize(("first", "second"), [([5, 5, 5], [1, 2, 3]), ([1, 2], [4, 4]), ([7], [7]), ([], [])])
def test_nothing_to_order_is_no_agreement_and_no_disagreement(first, second):
    assert kendall_tau_b(first, second) is None


@given(SCORES)
def test_tau_is_symmetric_bounded_and_turns_its_sign_with_either_scoring(pairs):
    first, second = zip(*pairs, strict=True)
    tau = kendall_tau_b(first, second)
    reverse = kendall_tau_b(first, [-score for score in second])
    assert tau == kendall_tau_b(second, first)
    assert (tau is None) == (len(set(first)) == 1 or len(set(second)) == 1)
    if tau is not None:
        assert -1 - 1e-12 <= tau <= 1 + 1e-12
        assert reverse == pytest.approx(-tau)


def test_mean_over_pairs_leaves_out_those_without_an_order():
    assert mean_agreement([[1, 2], [1, 2], [2, 1]]) == pytest.approx((1 - 1 - 1) / 3)
    assert mean_agreement([[1, 2], [5, 5], [1, 2]]) == 1.0
    assert mean_agreement([[1, 2]]) is None
    assert mean_agreement([]) is None
