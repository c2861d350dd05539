"""What an argument file asks of layers beside their results: less memory, other kernels, the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddlenlp.transformers.qwen2 import modeling

from grrm.models.packing import dense_mask, flashmask_ends, pack_rows
from grrm.models.policy import policy_class

# As PaddleNLP has it: a test that ran before may have put the CPU's form in its place.
STOCK_ATTENTION, STOCK_REPEAT = modeling.scaled_dot_product_attention, modeling.repeat_kv
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def policy(**settings: Any) -> Any:
    paddle.seed(7)
    cls = policy_class("qwen2")
    model = cls(cls.config_class(**SIZES, **settings))
    if "recompute_granularity" in settings:
        model.recompute_enable()
    model.train()
    return model


def packed(rng: np.random.Generator) -> Any:
    """Rows of several prompts with several answers, some of them empty of company, and padding."""
    prompts, responses = [], []
    for _ in range(rng.integers(1, 6)):
        prompt = rng.integers(1, 60, rng.integers(1, 12)).tolist()
        for _ in range(rng.integers(1, 4)):
            prompts.append(prompt)
            responses.append(rng.integers(1, 60, rng.integers(1, 9)).tolist())
    return pack_rows(prompts, responses, 0, max_tokens=40, row_tokens=48)


def gradients(model: Any, tokens: Any) -> list[np.ndarray]:
    hidden_NH = model(**tokens.model_inputs()).hidden_NH
    (hidden_NH * hidden_NH * paddle.arange(hidden_NH.shape[0]).astype("float32").unsqueeze(-1)).mean().backward()
    return [one.grad.numpy() for one in model.parameters() if one.grad is not None]


@pytest.mark.parametrize("seed", range(20))
def test_flashmask_lets_every_token_see_what_the_ranges_do(seed: int) -> None:
    tokens = packed(np.random.default_rng(seed))
    ends_BT = flashmask_ends(tokens.attention_ranges_3BT).numpy()
    rows, columns = np.mgrid[: ends_BT.shape[1], : ends_BT.shape[1]]
    seen_BTT = (columns <= rows) & (rows < ends_BT[:, None, :])
    np.testing.assert_array_equal(seen_BTT, dense_mask(tokens.attention_ranges_3BT).numpy())


def test_plain_causal_rows_are_seen_to_their_end() -> None:
    assert flashmask_ends(paddle.zeros([3, 2, 5], dtype="int32")).tolist() == [[5] * 5] * 2


def stand_in(query: Any, key: Any, value: Any, startend_row_indices: Any, causal: bool) -> Any:
    """F.flashmask_attention in plain operators."""
    assert causal
    assert startend_row_indices.shape == [query.shape[0], 1, query.shape[1], 1]
    n_rep = query.shape[2] // key.shape[2]
    q, k, v = (x.transpose([0, 2, 1, 3]) for x in (query, *(STOCK_REPEAT(x, n_rep) for x in (key, value))))
    at = paddle.arange(q.shape[2], dtype="int32")
    ends = startend_row_indices.squeeze(-1).unsqueeze(2)
    seen = (at.reshape([1, 1, 1, -1]) <= at.reshape([1, 1, -1, 1])) & (at.reshape([1, 1, -1, 1]) < ends)
    scores = paddle.matmul(q, k, transpose_y=True) / q.shape[-1] ** 0.5 + (seen.astype("float32") - 1) * 1e9
    return paddle.matmul(F.softmax(scores, axis=-1), v).transpose([0, 2, 1, 3])


def test_flash_attention_is_asked_for_what_the_mask_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "flashmask_attention", stand_in)
    monkeypatch.setattr(modeling, "scaled_dot_product_attention", STOCK_ATTENTION)
    monkeypatch.setattr(modeling, "repeat_kv", STOCK_REPEAT)
    tokens = packed(np.random.default_rng(3))
    plain, flashing = (policy(use_flash_attention=flag) for flag in (False, True))
    flashing.reads_ranges = plain.reads_ranges = False
    monkeypatch.setattr(plain, "_attention", lambda ids, ranges: {"attention_mask": dense_mask(ranges)})
    for wanted, found in zip(gradients(plain, tokens), gradients(flashing, tokens), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("granularity", "again"), [("full", (2, 2)), ("full_attn", (2, 1)), ("core_attn", (2, 1))])
def test_what_is_computed_again_changes_no_gradient(
    granularity: str, again: tuple[int, int], reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"attention": 0, "mlp": 0}
    attend, feed_forward = modeling.scaled_dot_product_attention, modeling.Qwen2MLP.forward

    def counted(name: str, run: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return run(*args, **kwargs)

        return wrapped

    tokens = packed(np.random.default_rng(5))
    wanted = gradients(policy(), tokens)
    monkeypatch.setattr(modeling.Qwen2MLP, "forward", counted("mlp", feed_forward))
    model = policy(recompute_granularity=granularity, recompute_use_reentrant=reentrant)
    for layer in model.qwen2.layers:
        layer.self_attn.attn_func = counted("attention", attend)
    for found, expected in zip(gradients(model, tokens), wanted, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (calls["attention"], calls["mlp"]) == (2 * again[0], 2 * again[1])
