"""Sequences of one prompt read what they share once, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.engine.block_cache import BLOCK
from grrm.engine.paddle.cpu_decoder import CpuDecoder

STEPS = 3


@pytest.fixture(params=[2, 6, 1], ids="{} key heads".format)
def model(request, make_model):
    model = make_model("qwen2", num_key_value_heads=request.param, max_position_embeddings=128)
    if CpuDecoder.unsupported_reason(model):
        pytest.skip("the C++ decoder does not run this here")
    return model


@pytest.fixture
def decoder(model):
    return CpuDecoder(model)


def filled(decoder, lengths, slots, sources):
    """A cache of prompts of these lengths in these slots."""
    tokens = np.random.default_rng(4).integers(0, 97, (len(lengths), max(lengths)))
    cache = decoder.new_cache(12, 128)
    decoder.prefill(tokens, np.array(lengths), cache, slots, sources)
    return cache


def test_a_sequence_has_the_same_bits_among_samples_of_its_prompt_and_alone(decoder):
    lengths, rng = np.array([70, 3, 64, 33]), np.random.default_rng(5)
    slots, sources = np.array([7, 2, 9, 0, 4, 1, 11, 3]), np.array([0, 0, 1, 1, 2, 2, 2, 3])
    together, alone = (filled(decoder, lengths, slots, sources) for _ in range(2))
    for step in range(STEPS):
        order = rng.permutation(len(slots))
        tokens, positions = rng.integers(0, 97, len(slots)), lengths[sources] + step
        got = decoder.decode(slots[order], tokens[order], positions[order], together)
        for row, i in enumerate(order):
            one = slice(i, i + 1)
            assert (got[row] == decoder.decode(slots[one], tokens[one], positions[one], alone)[0]).all()


def test_a_prompt_that_exceeds_a_pass_goes_on_in_the_next(model, decoder, tokens_of_passes):
    lengths, slots, sources = [70, 3, 64, 33], np.array([7, 2, 9, 0]), np.arange(4)
    whole = filled(decoder, lengths, slots, sources)
    tokens_of_passes.clear()
    narrow = CpuDecoder(model, pass_tokens=32)  # its cache points to its weights
    parts = filled(narrow, lengths, slots, sources)
    assert tokens_of_passes == [32, 32, 32, 32, 32, 10]
    inputs = slots, np.array([5, 6, 7, 8]), np.array(lengths)
    np.testing.assert_allclose(narrow.decode(*inputs, parts), decoder.decode(*inputs, whole), atol=1e-5)


def test_the_kernel_reads_what_samples_share_in_one_slot_only(decoder):
    lengths, slots, sources = [100], np.array([3, 8, 5]), np.array([0, 0, 0])
    inputs = slots, np.array([4, 5, 6]), np.array([100, 100, 100])
    wanted = decoder.decode(*inputs, filled(decoder, lengths, slots, sources))
    for owner, reads_in_place_of_8 in ((3, True), (8, False)):
        cache = filled(decoder, lengths, slots, sources)
        layers, key_heads = len(decoder.weights.layers), decoder.weights.n_kv_heads
        values = cache.values.reshape(layers, cache.tables.n_owners.size, key_heads, BLOCK, -1)
        values[:, cache.tables.blocks_SB[8, 1], :, :32] = np.nan  # behind the block that all have in common
        order = np.argsort(slots != owner, kind="stable")
        got = decoder.decode(*(one[order] for one in inputs), cache)[np.argsort(order)]
        assert (got == wanted).all() == reads_in_place_of_8


def test_a_slot_that_another_prompt_took_over_shares_nothing_any_more(decoder):
    cache = filled(decoder, [70], np.array([3, 8]), np.array([0, 0]))
    prompt = np.arange(40)[None]
    decoder.prefill(prompt, np.array([40]), cache, np.array([3]), np.array([0]))
    both, tokens, positions = np.array([3, 8]), np.array([1, 2]), np.array([40, 70])
    got = decoder.decode(both, tokens, positions, cache)
    fresh = decoder.new_cache(1, 128)
    decoder.prefill(prompt, np.array([40]), fresh, np.array([0]), np.array([0]))
    assert (got[0] == decoder.decode(np.array([0]), tokens[:1], positions[:1], fresh)[0]).all()
