"""The engine with rounded products: near float32, the same in any batch, and refused where the kernels do not run."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.engine.api import SamplingParams
from grrm.engine.paddle import cpu_decoder
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models import cpu_kernels

needs_kernels = pytest.mark.skipif(not cpu_kernels.available(), reason="there is no C++ compiler here")


@needs_kernels
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_log_probabilities_are_those_of_float32_but_for_rounding(precision, model, prompts):
    params = SamplingParams(max_new_tokens=1, seed=3)
    exact = PaddleEngine(model).generate(prompts, params)
    rounded = PaddleEngine(model, precision=precision).generate(prompts, params)
    pairs = [(a.logprobs[0], b.logprobs[0]) for a, b in zip(exact, rounded, strict=True) if a.token_ids == b.token_ids]
    assert len(pairs) > len(prompts) / 2
    gaps = np.abs(np.diff(pairs, axis=1))
    assert 1e-5 < gaps.max() < 0.1  # rounded, but not wrong


@needs_kernels
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_completions_have_the_same_bits_in_any_batch(precision, model, prompts):
    params = SamplingParams(max_new_tokens=8, seed=9)
    engine = PaddleEngine(model, precision=precision)
    whole = engine.generate(prompts, params)
    for index in range(0, len(prompts), 3):
        alone = engine.generate([prompts[index]], params, [index])[0]
        assert (alone.token_ids, alone.logprobs) == (whole[index].token_ids, whole[index].logprobs)


@needs_kernels
def test_weights_that_change_are_laid_out_anew(make_model, prompts):
    model, params = make_model("qwen2"), SamplingParams(max_new_tokens=4, temperature=0)
    engine = PaddleEngine(model, precision="bfloat16")
    before = engine.generate(prompts, params)
    for parameter in model.parameters():
        parameter.set_value(parameter * 1.5)
    after = engine.generate(prompts, params)
    assert [one.logprobs for one in after] != [one.logprobs for one in before]
    assert after == PaddleEngine(model, precision="bfloat16").generate(prompts, params)


@needs_kernels
def test_eight_bits_without_room_for_them_are_an_error_and_not_bfloat16(model, prompts, monkeypatch):
    def no_room(*_):
        raise OSError("cannot allocate")

    engines = {precision: PaddleEngine(model, precision=precision) for precision in ("int8", "bfloat16")}
    monkeypatch.setattr(cpu_decoder.mmap, "mmap", no_room)
    params = SamplingParams(max_new_tokens=1)
    with pytest.raises(MemoryError, match="weights in eight bits"):
        engines["int8"].generate(prompts, params)
    assert len(engines["bfloat16"].generate(prompts, params)) == len(prompts)


def test_a_precision_the_kernels_alone_have_is_refused_without_them(model, monkeypatch):
    with pytest.raises(UserError, match="precision bfloat16 needs the C\\+\\+ kernels, but they are switched off"):
        PaddleEngine(model, use_kernels=False, precision="bfloat16")
    monkeypatch.setattr(CpuDecoder, "unsupported_reason", lambda model, precision: "its projections are fused")
    with pytest.raises(UserError, match="its projections are fused: use float32"):
        PaddleEngine(model, precision="bfloat16")
    PaddleEngine(model)  # float32 goes on in Paddle operators
