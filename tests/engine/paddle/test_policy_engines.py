"""Tensor ranks that sample together, each with its part of the weights, draw what one process draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from engine.paddle import divided_sampling
from engine.paddle.divided_sampling import PROMPTS, drawn, whole_model
from support.rl_processes import run, two_ranks
from support.tiny_models import naive_logits

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.policy_engines import ParkedWeights


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["untied", "tied", "llama", "undivided"])
def test_every_rank_gets_the_completions_of_its_own_prompts_as_one_process_draws_them(
    tmp_path: Path, kind: str
) -> None:
    run(two_ranks([str(Path(divided_sampling.__file__)), str(tmp_path), kind], tmp_path / "logs"))
    model = whole_model(kind)
    engine = PaddleEngine(model)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for rank, found in enumerate(ranks):
        assert_same(found["all"], drawn(engine, PROMPTS[rank], 100 * rank))
        assert_same(found["in little memory"]["drawn"], drawn(engine, PROMPTS[rank], 100 * rank))
        assert found["in little memory"]["running"] == 2, "as many as the rank with the least memory has room for"
        refused = f"outside the model's vocabulary of {model.config.vocab_size}"
        assert refused in found["refused"], "also where the other rank asked"
        for kind_of_sampling in ("diverged", "diverged with penalties"):
            assert "not finite" in found[kind_of_sampling], "also where only the first rank finds it"
    assert ranks[0]["alone"] == [], "a rank without prompts draws with the others"
    assert_same(ranks[1]["alone"], drawn(engine, PROMPTS[0], 0))
    prompt = PROMPTS[0][2]
    wanted = [naive_logits(model, tokens)[-1] for tokens in (prompt, [*prompt, 40])]
    for found in ranks:
        np.testing.assert_allclose(found["fused"], wanted, atol=1e-4)


def assert_same(ours: list[dict], theirs: list[dict]) -> None:
    assert [one["token_ids"] for one in ours] == [one["token_ids"] for one in theirs]
    assert len({tuple(one["token_ids"]) for one in ours}) == len(ours), "samples differ"
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one["logprobs"], other["logprobs"], atol=1e-4)


# --- weights that are on the device only while an engine is used


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
