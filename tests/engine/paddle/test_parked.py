"""Weights that are on the device only while an engine is used."""

from __future__ import annotations

import pytest

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.parked import ParkedWeights


@pytest.mark.parametrize("use_kernels", [True, False])
def test_an_engine_draws_the_same_after_its_weights_were_away(make_model, use_kernels):
    params, prompts = SamplingParams(max_new_tokens=6, seed=2), [[5, 9, 2], [7]]
    before = PaddleEngine(make_model(tie_word_embeddings=True), use_kernels=use_kernels).generate(prompts, params)
    model = make_model(tie_word_embeddings=True)
    engine = PaddleEngine(model, use_kernels=use_kernels)
    parked = ParkedWeights(engine)
    for _ in range(2):
        assert not any(parameter._is_initialized() for parameter in model.parameters()), "none while it sleeps"
        parked.wake()
        assert engine.generate(prompts, params) == before
        parked.sleep()
