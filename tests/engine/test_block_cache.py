"""Who owns which block: bounded, freed when a slot is filled anew, never written by one of several owners."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.engine.block_cache import BLOCK, BlockCache, BlockTables

MAX_LEN, N_SLOTS = 3 * BLOCK + 10, 4
KINDS = st.sampled_from(["begin", "share", "extend"])
EVENTS = st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(1, 3), st.integers(1, MAX_LEN)), max_size=60)


def check(tables: BlockTables) -> None:
    owned = tables.blocks_SB[tables.blocks_SB >= 0]
    assert (np.bincount(owned, minlength=tables.blocks_SB.size) == tables.n_owners).all()
    assert tables.n_free == (tables.n_owners == 0).sum()


@given(EVENTS)
@settings(deadline=None)
def test_blocks_are_neither_lost_nor_given_out_twice(events):
    """Slots come, share and grow in any order: there is always a block, and nobody writes to another one's."""
    tables, lengths, prompts = BlockTables(N_SLOTS, MAX_LEN), np.zeros(N_SLOTS, int), np.zeros(N_SLOTS, int)
    for what, slot, step, length in events:
        other = (slot + step) % N_SLOTS
        if what == "begin":
            tables.begin(slot, length)
            lengths[slot] = prompts[slot] = length
        elif what == "share" and prompts[other]:
            copies = tables.share(slot, other, prompts[other])
            lengths[slot] = prompts[slot] = prompts[other]
            last = prompts[other] // BLOCK
            rows = [other, slot]
            assert copies == ([tuple(tables.blocks_SB[rows, last])] if prompts[other] % BLOCK else [])
        elif what == "extend" and 0 < lengths[slot] < MAX_LEN:
            tables.extend(np.array([slot]), np.array([lengths[slot]]))
            assert tables.n_owners[tables.blocks_SB[slot, lengths[slot] // BLOCK]] == 1
            lengths[slot] += 1
        check(tables)
        for row, tokens in enumerate(lengths):
            assert (tables.blocks_SB[row] >= 0).sum() == -(-tokens // BLOCK)


def test_samples_of_a_prompt_share_its_full_blocks():
    tables = BlockTables(4, 4 * BLOCK)
    tables.begin(0, 2 * BLOCK + 1)
    for slot in (1, 2, 3):
        tables.share(slot, 0, 2 * BLOCK + 1)
    assert tables.n_free == 16 - (2 + 4)
    assert (tables.blocks_SB[:, :2] == tables.blocks_SB[0, :2]).all()
    assert len(set(tables.blocks_SB[:, 2].tolist())) == 4


@pytest.mark.parametrize("length", [0, 2 * BLOCK + 1])
def test_a_sequence_that_does_not_fit_is_refused(length):
    with pytest.raises(ValueError, match=f"{length} tokens"):
        BlockTables(1, 2 * BLOCK).begin(0, length)


@pytest.mark.parametrize("position", [0, 2 * BLOCK, -1])
def test_a_step_outside_its_slot_is_refused(position):
    tables = BlockTables(2, 2 * BLOCK)
    with pytest.raises(ValueError, match="positions"):
        tables.extend(np.array([0, 1]), np.array([5, position]))


def test_copies_go_to_all_layers_and_nowhere_else():
    cache = BlockCache(2, 3, 2, BLOCK, 4, paddle.float32)
    rng = np.random.default_rng(0)
    before = [rng.normal(size=stored.shape).astype("float32") for stored in (*cache.keys, *cache.values)]
    for stored, numbers in zip((*cache.keys, *cache.values), before, strict=True):
        stored.set_value(numbers)
    cache.copy([(2, 0)])
    for stored, numbers in zip((*cache.keys, *cache.values), before, strict=True):
        np.testing.assert_array_equal(stored.numpy(), numbers[[2, 1, 2]])
