"""Prompts that begin alike: what they share runs once, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from engine.paddle.fused_reference import padded
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.cpu_cache import SharedPrefixes
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=9)


@given(ROWS, st.integers(0, 4), st.integers(1, 3))
@settings(deadline=None)
def test_what_a_row_takes_from_another_is_there_before_it(rows, shortest, deepest):
    found = SharedPrefixes.find(*padded(rows), shortest, deepest)
    assert found.levels_P.max() <= deepest
    for row, (owner, shared, level) in enumerate(zip(found.owners_P, found.shared_P, found.levels_P, strict=True)):
        assert rows[row][:shared] == rows[owner][:shared]
        assert shared < len(rows[row])
        if level == 0:
            assert (owner, shared) == (row, 0)
        else:
            assert shared >= max(shortest, 1)
            assert found.levels_P[owner] < level


@given(ROWS)
@settings(deadline=None)
def test_every_shared_token_runs_once(rows):
    found = SharedPrefixes.find(*padded(rows), shortest=1, deepest=9)
    prefixes = {tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)}
    ran = sum(map(len, rows)) - found.shared_P.sum()
    assert len(prefixes) <= ran <= len(prefixes) + sum(map(begins_another, [rows] * len(rows), range(len(rows))))


def begins_another(rows, number):
    """Only such a row may run a token that another one runs: its last."""
    row = rows[number]
    return any(other[: len(row)] == row for place, other in enumerate(rows) if place != number)


def test_prompts_with_a_common_source_generate_what_each_does_alone(model):
    prompts, params = prompts_of_two_sources(), SamplingParams(max_new_tokens=5, temperature=0.7, seed=4)
    engine = PaddleEngine(model)
    together = engine.generate(prompts, params)
    alone = [engine.generate([prompt], params, [i])[0] for i, prompt in enumerate(prompts)]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    logprobs = [[one.logprobs for one in answers] for answers in (together, alone)]
    np.testing.assert_allclose(*logprobs, rtol=0, atol=1e-5)


def test_a_header_and_a_source_that_prompts_share_run_once(model, tokens_of_passes):
    if CpuDecoder.unsupported_reason(model):
        pytest.skip("the C++ decoder does not run here")
    PaddleEngine(model).generate(prompts_of_two_sources(), SamplingParams(max_new_tokens=1))
    assert tokens_of_passes == [17 + 8 + 9, 8 + 9 + 2 * 9, 2 * 9]  # what a level adds to the one before


def prompts_of_two_sources():
    rng = np.random.default_rng(3)
    header, sources = rng.integers(1, 97, 17).tolist(), rng.integers(1, 97, (2, 8)).tolist()
    ends = rng.integers(1, 97, (6, 9)).tolist()
    return [header + sources[i % 2] + end for i, end in enumerate(ends)]
