"""The comparison with transformers: what is counted as the same, and our own side of it."""

from __future__ import annotations

import pytest
from support.tiny_policy import write_policy

from grrm.data.bpe import train_bpe
from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine


def test_tokens_count_up_to_the_first_that_differs(parity, tmp_path):
    train_bpe(["one two three"], tmp_path / "tiny", 260)
    write_policy(tmp_path / "tiny", max_position_embeddings=200)
    prompts = [[1, 2, 3], [4, 5]]
    params = SamplingParams(max_new_tokens=parity.NEW_TOKENS, min_new_tokens=parity.NEW_TOKENS, temperature=0.0)
    made = PaddleEngine.from_pretrained(tmp_path / "tiny").generate(prompts, params)
    theirs = {
        "prompts": prompts,
        "tokens": [list(one.token_ids) for one in made],
        "logprobs": [list(one.logprobs) for one in made],
    }
    total = 2 * parity.NEW_TOKENS
    for options in parity.ENGINES.values():
        row = parity.engine_row(tmp_path, "tiny", "any", options, theirs)
        assert (row["tokens"], row["same_tokens"]) == (total, total)
        assert row["largest_gap"] < 1e-4
    assert parity.trainer_row(tmp_path, "tiny", theirs)["largest_gap"] < 1e-4
    theirs["tokens"][1][3] += 1
    theirs["logprobs"][0][5] -= 0.5
    row = parity.engine_row(tmp_path, "tiny", "any", {}, theirs)
    assert row["same_tokens"] == parity.NEW_TOKENS + 3
    assert row["largest_gap"] == pytest.approx(0.5, abs=1e-4)
