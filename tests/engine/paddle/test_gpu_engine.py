"""The engine on fused operators, here those that run on a CPU: the completions are those of the other back ends."""

from __future__ import annotations

import numpy as np
import pytest
from engine.paddle.fused_reference import reference_operators

from grrm.engine.api import SamplingParams
from grrm.engine.paddle import gpu_decoder
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine, choose_decoder
from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.plain_decoder import PlainDecoder

STOPS = (0, 1, 2, 3)


@pytest.fixture
def on_gpu_operators(monkeypatch):
    monkeypatch.setattr(gpu_decoder, "paddle_operators", reference_operators)


def decoder_class(model, use_kernels=True):
    decoder, _ = choose_decoder(
        model, use_kernels=use_kernels, precision="float32", max_packed_bytes=0, pass_tokens=4096
    )
    return type(decoder)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"temperature": 0, "repetition_penalty": 1.5, "min_new_tokens": 4},
        {"temperature": 0.6, "top_k": 7},
        {"temperature": 1.5, "top_p": 0.7, "min_new_tokens": 5},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.2, "min_new_tokens": 3},
    ],
)
@pytest.mark.usefixtures("on_gpu_operators")
def test_completions_are_those_of_plain_operators(options, make_model, prompts):
    model = make_model("qwen2", max_position_embeddings=128)
    prompts = [[*prompt, *([11] * 60)] if index > 7 else prompt for index, prompt in enumerate(prompts)]
    params = SamplingParams(max_new_tokens=7, stop_token_ids=STOPS, seed=5, **options)
    # Six slots for fourteen prompts: sequences wait, and enter slots that others have used.
    gpu, plain = (PaddleEngine(model, max_num_seqs=6, use_kernels=used) for used in (True, False))
    assert [decoder_class(model, used) for used in (True, False)] == [GpuDecoder, PlainDecoder]
    for one, wanted in zip(gpu.generate(prompts, params), plain.generate(prompts, params), strict=True):
        assert (one.token_ids, one.finish_reason) == (wanted.token_ids, wanted.finish_reason)
        np.testing.assert_allclose(one.logprobs, wanted.logprobs, atol=1e-4)


@pytest.mark.usefixtures("on_gpu_operators")
def test_a_budget_bounds_the_blocks_and_they_are_used_again(make_model, monkeypatch):
    model, caches, new_cache = make_model("qwen2", max_position_embeddings=200), [], GpuDecoder.new_cache
    monkeypatch.setattr(GpuDecoder, "new_cache", lambda *given: caches.append(new_cache(*given)) or caches[-1])
    engine = PaddleEngine(model, max_cache_bytes=2 * GpuDecoder(model, reference_operators()).cache_bytes(144))
    prompts = [[token] * 130 for token in (5, 5, 6, 6, 7, 8, 8)]
    engine.generate(prompts, SamplingParams(max_new_tokens=3))
    (cache,) = caches
    assert cache.keys[0].shape[0] == 2 * 3  # blocks for two whole sequences, which seven took in turn
    assert cache.tables.n_free == 6


def test_a_model_on_the_cpu_goes_on_in_kernels_or_plain_operators(model):
    wanted = PlainDecoder if CpuDecoder.unsupported_reason(model) else CpuDecoder
    assert decoder_class(model) is wanted
