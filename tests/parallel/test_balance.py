"""Whole groups over ranks: nothing lost, nothing twice, near-equal work, the same answer everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.parallel.data_ranks import assign_groups


@st.composite
def batches(draw):
    n_ranks = draw(st.integers(1, 5))
    room = draw(st.integers(1, 6))
    return draw(st.lists(st.integers(0, 1000), min_size=n_ranks * room, max_size=n_ranks * room)), n_ranks


@given(batch=batches(), balance=st.booleans())
def test_every_group_goes_to_one_rank_and_every_rank_gets_as_many(batch, balance):
    work, n_ranks = batch
    assigned = assign_groups(work, n_ranks, balance)
    assert [len(indices) for indices in assigned] == [len(work) // n_ranks] * n_ranks
    assert sorted(index for indices in assigned for index in indices) == list(range(len(work)))
    assert all(indices == sorted(indices) for indices in assigned)
    assert assign_groups(list(work), n_ranks, balance) == assigned


@given(batch=batches())
def test_balanced_loads_differ_by_no_more_than_the_heaviest_group_per_place(batch):
    work, n_ranks = batch
    loads = [sum(work[i] for i in indices) for indices in assign_groups(work, n_ranks, True)]
    # Sorted by work, place k of any two ranks differs by at most the drop of work over that round of the deal.
    assert max(loads) - min(loads) <= max(work)


def test_balancing_evens_out_what_contiguous_slices_do_not():
    work = [100, 90, 80, 10, 20, 30]
    slices = assign_groups(work, 2, False)
    assert slices == [[0, 1, 2], [3, 4, 5]]
    assert assign_groups(work, 2, True) == [[0, 4, 5], [1, 2, 3]]  # 150 and 180 instead of 270 and 60


def test_equal_work_is_dealt_in_turn_and_ties_go_to_the_lower_rank():
    assert assign_groups([5, 5, 5, 5], 2, True) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("balance", [False, True])
def test_groups_that_do_not_divide_are_refused(balance):
    with pytest.raises(UserError, match="5 groups do not divide among 2 ranks"):
        assign_groups([1] * 5, 2, balance)
