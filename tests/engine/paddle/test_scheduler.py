"""Who enters a slot that has become free, and when."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from grrm.engine.api import Request, SamplingParams
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.slots import NOTHING, Slots
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


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is counted as Linux does")
def test_a_reply_that_may_be_long_takes_memory_as_it_is_written():
    slots, before = Slots(256, 100), resident_bytes()
    slots.admit(0, 0, Request([1], SamplingParams(1 << 17)), 1 << 17, NOTHING)
    assert resident_bytes() - before < 64 << 20  # room for all slots is twelve times as much


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
