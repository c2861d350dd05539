from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.rl.batch_sampler import PromptSampler

SIZES = st.integers(1, 40)
SEEDS = st.integers(0, 2**31)


def _epoch(sampler: PromptSampler, epoch: int, n_prompts: int, seed: int, shuffle: bool = True) -> list[int]:
    per_epoch = sampler.batches_per_epoch(n_prompts)
    return [
        index
        for rollout in range(epoch * per_epoch, (epoch + 1) * per_epoch)
        for index in sampler.batch_for(rollout, n_prompts, seed, shuffle)
    ]


@given(SIZES, st.integers(1, 8), SEEDS, st.integers(0, 3), st.booleans(), st.booleans())
def test_each_epoch_visits_each_item_once_when_batches_divide_it(
    batches: int, n_prompts: int, seed: int, epoch: int, shuffle: bool, drop_last: bool
) -> None:
    sampler = PromptSampler(batches * n_prompts, drop_last)
    assert sorted(_epoch(sampler, epoch, n_prompts, seed, shuffle)) == list(range(batches * n_prompts))


@given(SIZES, st.integers(1, 40), SEEDS, st.integers(0, 3))
def test_drop_last_never_repeats_an_item_within_an_epoch(n_items: int, n_prompts: int, seed: int, epoch: int) -> None:
    n_prompts = min(n_prompts, n_items)
    visited = _epoch(PromptSampler(n_items, drop_last=True), epoch, n_prompts, seed)
    assert len(visited) == n_items // n_prompts * n_prompts
    assert len(set(visited)) == len(visited)


@given(SIZES, st.integers(1, 60), SEEDS)
def test_without_drop_last_every_item_is_seen_equally_often(n_items: int, n_prompts: int, seed: int) -> None:
    sampler = PromptSampler(n_items, drop_last=False)
    visits = Counter(i for rollout in range(n_items) for i in sampler.batch_for(rollout, n_prompts, seed))
    assert set(visits.values()) == {n_prompts}
    assert len(visits) == n_items


@given(SIZES, SEEDS, st.integers(0, 30), st.booleans())
def test_batch_size_only_cuts_the_same_order_into_other_pieces(
    n_items: int, seed: int, rollout: int, shuffle: bool
) -> None:
    """So the order cannot depend on how many ranks share a batch."""
    sampler = PromptSampler(n_items, drop_last=False)
    whole = sampler.batch_for(rollout, 4, seed, shuffle)
    halves = [sampler.batch_for(2 * rollout + half, 2, seed, shuffle) for half in (0, 1)]
    assert whole == halves[0] + halves[1]


def test_a_rollout_is_a_function_of_its_number_alone() -> None:
    first = PromptSampler(100).batch_for(37, 8, seed=5)
    for rollout in (3, 99, 0):
        PromptSampler(50).batch_for(rollout, 8, seed=6)
    assert PromptSampler(100).batch_for(37, 8, seed=5) == first


def test_seed_and_epoch_change_the_order_and_no_shuffle_keeps_it() -> None:
    sampler = PromptSampler(64)
    orders = {tuple(sampler.batch_for(rollout, 64, seed)) for rollout in (0, 1) for seed in (0, 1)}
    assert len(orders) == 4
    assert sampler.batch_for(1, 64, 0, shuffle=False) == list(range(64))


def test_too_few_prompts_are_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match="needs 8 prompts but the data set has 5; lower global_batch_size"):
        PromptSampler(5).batch_for(0, 8, seed=0)
    assert len(PromptSampler(5, drop_last=False).batch_for(0, 8, seed=0)) == 8
    with pytest.raises(UserError, match="no prompts"):
        PromptSampler(0)


def test_senseless_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="rollout_index"):
        PromptSampler(5).batch_for(-1, 2, seed=0)
    with pytest.raises(ValueError, match="n_prompts"):
        PromptSampler(5).batch_for(0, 0, seed=0)
