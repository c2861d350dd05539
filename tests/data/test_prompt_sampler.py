from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from grrm.rl.batch_sampler import prompt_indices

SIZES = st.integers(1, 40)
SEEDS = st.integers(0, 2**31)


def _epoch(n_items: int, epoch: int, n_prompts: int, seed: int, **how: bool) -> list[int]:
    per_epoch = n_items // n_prompts
    return [
        index
        for rollout in range(epoch * per_epoch, (epoch + 1) * per_epoch)
        for index in prompt_indices(n_items, rollout, n_prompts, seed=seed, **how)
    ]


@given(SIZES, st.integers(1, 8), SEEDS, st.integers(0, 3), st.booleans(), st.booleans())
def test_each_epoch_visits_each_item_once_when_batches_divide_it(
    batches: int, n_prompts: int, seed: int, epoch: int, shuffle: bool, drop_last: bool
) -> None:
    visited = _epoch(batches * n_prompts, epoch, n_prompts, seed, shuffle=shuffle, drop_last=drop_last)
    assert sorted(visited) == list(range(batches * n_prompts))


@given(SIZES, st.integers(1, 40), SEEDS, st.integers(0, 3))
def test_drop_last_never_repeats_an_item_within_an_epoch(n_items: int, n_prompts: int, seed: int, epoch: int) -> None:
    n_prompts = min(n_prompts, n_items)
    visited = _epoch(n_items, epoch, n_prompts, seed, drop_last=True)
    assert len(visited) == n_items // n_prompts * n_prompts
    assert len(set(visited)) == len(visited)


@given(SIZES, st.integers(1, 60), SEEDS)
def test_without_drop_last_every_item_is_seen_equally_often(n_items: int, n_prompts: int, seed: int) -> None:
    batches = (prompt_indices(n_items, rollout, n_prompts, seed=seed, drop_last=False) for rollout in range(n_items))
    visits = Counter(i for batch in batches for i in batch)
    assert set(visits.values()) == {n_prompts}
    assert len(visits) == n_items


@given(SIZES, SEEDS, st.integers(0, 30), st.booleans())
def test_batch_size_only_cuts_the_same_order_into_other_pieces(
    n_items: int, seed: int, rollout: int, shuffle: bool
) -> None:
    """So the order cannot depend on how many ranks share a batch."""
    how = {"seed": seed, "shuffle": shuffle, "drop_last": False}
    whole = prompt_indices(n_items, rollout, 4, **how)
    halves = [prompt_indices(n_items, 2 * rollout + half, 2, **how) for half in (0, 1)]
    assert whole == halves[0] + halves[1]


def test_a_rollout_is_a_function_of_its_number_alone() -> None:
    first = prompt_indices(100, 37, 8, seed=5)
    for rollout in (3, 99, 0):
        prompt_indices(50, rollout, 8, seed=6)
    assert prompt_indices(100, 37, 8, seed=5) == first


def test_seed_and_epoch_change_the_order_and_no_shuffle_keeps_it() -> None:
    orders = {tuple(prompt_indices(64, rollout, 64, seed=seed)) for rollout in (0, 1) for seed in (0, 1)}
    assert len(orders) == 4
    assert prompt_indices(64, 1, 64, seed=0, shuffle=False) == list(range(64))


def test_without_drop_last_a_batch_may_have_more_prompts_than_there_are() -> None:
    assert len(prompt_indices(5, 0, 8, seed=0, drop_last=False)) == 8
