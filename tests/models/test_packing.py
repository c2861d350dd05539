"""Packed rows give what separate rows give, with less work."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rl_processes import MODEL

from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.packing import index_packed
from grrm.models.policy import policy_class
from grrm.models.token_index import index_tokens

PAD = 0


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def model(request: pytest.FixtureRequest):
    use_cpu_layers()
    paddle.seed(5)
    cls = policy_class(request.param)
    sizes = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    return cls(cls.config_class(**sizes, vocab_size=64))


def groups(seed: int, n_groups: int, n_samples: int) -> tuple[list[list[int]], list[list[int]]]:
    rng = np.random.default_rng(seed)
    prompts, responses = [], []
    for _ in range(n_groups):
        prompt = rng.integers(1, 64, rng.integers(1, 9)).tolist()
        for _ in range(n_samples):
            prompts.append(prompt)
            responses.append(rng.integers(1, 64, rng.integers(1, 7)).tolist())
    return prompts, responses


def losses_and_gradients(model, index, weights_BR):
    scores = model(**index.model_inputs())
    rows_BR = index.to_rows(scores.logprobs_N)
    (rows_BR * weights_BR).sum().backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    model.clear_gradients()
    return rows_BR.numpy(), index.to_rows(scores.entropy_N).numpy(), gradients


@pytest.mark.parametrize(("max_tokens", "row_tokens"), [(1, 0), (12, 0), (1000, 0), (1, 64)])
def test_logprobs_entropies_and_gradients_equal_those_of_separate_rows(model, max_tokens, row_tokens):
    prompts, responses = groups(seed=max_tokens, n_groups=3, n_samples=4)
    packed = index_packed(prompts, responses, PAD, max_tokens, row_tokens)
    separate = index_tokens(prompts, responses, PAD)
    weights_BR = paddle.to_tensor(np.random.default_rng(1).normal(size=separate.scatter_BR.shape).astype("float32"))
    for left, right in zip(
        losses_and_gradients(model, packed, weights_BR), losses_and_gradients(model, separate, weights_BR), strict=True
    ):
        if isinstance(left, dict):
            assert left.keys() == right.keys()
            for name in left:
                np.testing.assert_allclose(left[name], right[name], atol=2e-5, err_msg=name)
        else:
            np.testing.assert_allclose(left, right, atol=2e-5)


def test_a_policy_with_frozen_lower_layers_trains_the_others(model):
    frozen = [p for name, p in model.named_parameters() if "layers.0." in name or "embed" in name]
    for parameter in frozen:
        parameter.stop_gradient = True
    prompts, responses = groups(seed=3, n_groups=2, n_samples=2)
    index = index_packed(prompts, responses, PAD, 40)
    weights_BR = paddle.ones(index.scatter_BR.shape)
    gradients = losses_and_gradients(model, index, weights_BR)[2]
    for parameter in frozen:
        parameter.stop_gradient = False
    moved = {name for name, gradient in gradients.items() if gradient.any()}
    assert any("layers.1." in name for name in moved)
    assert not any("layers.0." in name for name in moved)


@settings(deadline=None)
@given(seed=st.integers(0, 99), n_samples=st.integers(1, 5), max_tokens=st.integers(1, 40))
def test_no_packed_row_is_longer_than_allowed_unless_one_response_is(seed, n_samples, max_tokens):
    prompts, responses = groups(seed, 3, n_samples)
    index = index_packed(prompts, responses, PAD, max_tokens)
    longest_alone = max(len(p) + len(r) - 1 for p, r in zip(prompts, responses, strict=True))
    assert index.input_ids.shape[1] <= max(max_tokens, longest_alone)
    assert index.labels_N.tolist() == [token for response in responses for token in response]
    assert index.scatter_BR.tolist() == index_tokens(prompts, responses, PAD).scatter_BR.tolist()


def test_a_group_needs_one_copy_of_its_prompt():
    index = index_packed([[1, 2, 3]] * 4, [[5, 6], [7], [8, 9, 4], [5, 6]], PAD, 100)
    assert index.input_ids.tolist() == [[1, 2, 3, 5, 8, 9, 5]]
    assert index.position_ids.tolist() == [[0, 1, 2, 3, 3, 4, 3]]
    assert index.positions_N.tolist() == [2, 3, 2, 2, 4, 5, 2, 6]


@settings(deadline=None)
@given(seed=st.integers(0, 99), row_tokens=st.integers(0, 200))
def test_long_rows_never_need_more_tokens_than_short_ones(seed, row_tokens):
    prompts, responses = groups(seed, 5, 1)
    packs = [len(p) + len(r) - 1 for p, r in zip(prompts, responses, strict=True)]
    n_rows, width = index_packed(prompts, responses, PAD, 0, row_tokens).input_ids.shape
    assert max(packs) <= width <= max(row_tokens, *packs)
    assert (n_rows - 1) * (width - max(packs)) <= sum(packs)  # all rows but one lack less than the longest pack
    alone = index_packed(prompts, responses, PAD, 0).input_ids.shape
    assert n_rows * width <= alone[0] * alone[1]


def test_four_long_items_do_not_leave_a_second_long_row_nearly_empty():
    prompts, responses = [[number] * 25 for number in (3, 4, 5, 6)], [[7] * 8] * 4
    assert index_packed(prompts, responses, PAD, 0, row_tokens=120).input_ids.size == 4 * 32
