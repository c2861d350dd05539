import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.judges.permute import kendall_tau_b, mean_agreement

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


def test_scorings_of_different_candidates_cannot_be_compared():
    with pytest.raises(ValueError, match="2 scores cannot be compared with 1"):
        kendall_tau_b([1, 2], [1])


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


@given(st.permutations(range(6)))
def test_without_ties_tau_counts_the_inversions(order):
    inversions = sum(order[i] > order[k] for i, k in combinations(range(6), 2))
    assert kendall_tau_b(range(6), order) == pytest.approx(1 - 2 * inversions / 15)


def test_mean_over_pairs_leaves_out_those_without_an_order():
    assert mean_agreement([[1, 2], [1, 2], [2, 1]]) == pytest.approx((1 - 1 - 1) / 3)
    assert mean_agreement([[1, 2], [5, 5], [1, 2]]) == 1.0
    assert mean_agreement([[1, 2]]) is None
    assert mean_agreement([]) is None
