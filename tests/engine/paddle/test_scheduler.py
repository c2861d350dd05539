"""Who enters a slot that has become free, and when."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from grrm.engine.api import Request, SamplingParams
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.slots import NOTHING, Slots
from grrm.engine.sampling import draw_uniforms
from grrm.models.cpu_kernels import available

pytestmark = pytest.mark.skipif(not available(), reason="there is no C++ compiler here")
N_SLOTS = 8
PARAMS = SamplingParams(max_new_tokens=24, stop_token_ids=tuple(range(6)), seed=3)


class Watched:
    """What the C++ decoder was asked for: ("prefill", prompts) and ("decode", sequences)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, int]] = []
        for name in ("prefill", "decode"):
            monkeypatch.setattr(CpuDecoder, name, self._watched(name, getattr(CpuDecoder, name)))

    def _watched(self, name, method):
        def watched(decoder, first, *rest):
            self.events.append((name, len(first)))
            return method(decoder, first, *rest)

        return watched

    def busy_while_others_wait(self) -> list[int]:
        """Sequences in each step of decoding before the last prefill."""
        last = max(i for i, (kind, _) in enumerate(self.events) if kind == "prefill")
        return [count for kind, count in self.events[:last] if kind == "decode"]

    def prompts_read(self) -> int:
        return sum(count for kind, count in self.events if kind == "prefill")


def test_a_reply_that_may_be_long_takes_memory_as_it_grows():
    tracemalloc.start()
    slots = Slots(256, 100)
    slots.admit(0, 0, Request([1], SamplingParams(1 << 17)), 1 << 17, NOTHING)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20  # room for all slots is twelve times as much
    tracemalloc.stop()


def test_random_numbers_of_a_reply_are_those_of_its_stream_however_long_it_grows():
    requests = {0: Request([1], SamplingParams(5000, seed=3), 7), 1: Request([1], SamplingParams(2000, seed=-1), 2**70)}
    slots, one = Slots(3, 100), np.ones(1, np.int64)
    for number, request in requests.items():
        slots.admit(number, number, request, request.params.max_new_tokens, NOTHING)
    expected = [draw_uniforms(request.params.seed, request.stream_id, 5000) for request in requests.values()]
    for at in range(2000):
        np.testing.assert_array_equal(slots.uniforms(np.array([0, 1])), [stream[at] for stream in expected])
        ended = slots.record(np.array([0, 1]), np.array([at, -at]), np.zeros(2), [])
    assert [(number, len(completion.token_ids)) for number, completion in ended] == [(1, 2000)]
    number, before = slots.preempt()
    slots.admit(2, number, requests[0], 5000, before)
    for at in range(2000, 5000):
        assert slots.uniforms(2 * one)[0] == expected[0][at]
        ended = slots.record(2 * one, at * one, np.zeros(1), [])
    assert ended[0][1].token_ids == [*range(5000)]


def some_prompts(n: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(6, 60, (n, 9)).tolist()


def test_a_slot_that_is_free_is_taken_before_the_next_step(model, monkeypatch):
    engine = PaddleEngine(model, max_num_seqs=N_SLOTS)
    watched = Watched(monkeypatch)
    made = engine.generate(some_prompts(40), PARAMS)
    assert len({len(one.token_ids) for one in made}) > 3  # they do not all end together
    assert set(watched.busy_while_others_wait()) == {N_SLOTS}


def test_samples_of_a_prompt_enter_together_so_that_it_is_read_once(model, monkeypatch):
    engine = PaddleEngine(model, max_num_seqs=N_SLOTS)
    watched = Watched(monkeypatch)
    prompts = [prompt for prompt in some_prompts(20) for _ in range(2)]
    assert len(engine.generate(prompts, PARAMS)) == 40
    assert watched.prompts_read() == 20
    assert min(watched.busy_while_others_wait()) >= N_SLOTS - 1


def test_a_group_larger_than_a_quarter_of_the_slots_does_not_wait_for_all_of_them(model, monkeypatch):
    engine = PaddleEngine(model, max_num_seqs=N_SLOTS)
    watched = Watched(monkeypatch)
    prompts = [prompt for prompt in some_prompts(5) for _ in range(8)]
    assert len(engine.generate(prompts, PARAMS)) == 40
    assert min(watched.busy_while_others_wait()) > N_SLOTS - N_SLOTS // 4
