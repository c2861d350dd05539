"""Packed rows give what separate rows give, with less work."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rl_processes import MODEL

from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.packing import pack_rows, pad_rows
from grrm.models.policy import policy_class
from grrm.models.token_scores import score_hidden

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


def losses_and_gradients(model, index, weights_RT):
    scores = score_hidden(model(**index.model_inputs()).hidden_NH, model.lm_head, index.labels_N)
    rows_RT = index.to_rows(scores.logprobs_N)
    (rows_RT * weights_RT).sum().backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    model.clear_gradients()
    return rows_RT.numpy(), index.to_rows(scores.entropy_N).numpy(), gradients


@pytest.mark.parametrize(("max_tokens", "row_tokens"), [(1, 0), (12, 0), (1000, 0), (1, 64)])
def test_logprobs_entropies_and_gradients_equal_those_of_separate_rows(model, max_tokens, row_tokens):
    prompts, responses = groups(seed=max_tokens, n_groups=3, n_samples=4)
    packed = pack_rows(prompts, responses, PAD, max_tokens, row_tokens)
    separate = pad_rows(prompts, responses, PAD)
    shape = (len(responses), max(map(len, responses)))
    weights_RT = paddle.to_tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))
    for left, right in zip(
        losses_and_gradients(model, packed, weights_RT), losses_and_gradients(model, separate, weights_RT), strict=True
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
    index = pack_rows(prompts, responses, PAD, 40)
    weights_RT = paddle.ones([len(responses), max(map(len, responses))])
    gradients = losses_and_gradients(model, index, weights_RT)[2]
    for parameter in frozen:
        parameter.stop_gradient = False
    moved = {name for name, gradient in gradients.items() if gradient.any()}
    assert any("layers.1." in name for name in moved)
    assert not any("layers.0." in name for name in moved)


@settings(deadline=None)
@given(seed=st.integers(0, 99), n_samples=st.integers(1, 5), max_tokens=st.integers(1, 40))
def test_no_packed_row_is_longer_than_allowed_unless_one_response_is(seed, n_samples, max_tokens):
    prompts, responses = groups(seed, 3, n_samples)
    index = pack_rows(prompts, responses, PAD, max_tokens)
    longest_alone = max(len(p) + len(r) - 1 for p, r in zip(prompts, responses, strict=True))
    assert index.input_ids.shape[1] <= max(max_tokens, longest_alone)
    assert index.labels_N.tolist() == [token for response in responses for token in response]
    assert index.lengths_R == [*map(len, responses)]


def test_a_group_needs_one_copy_of_its_prompt():
    index = pack_rows([[1, 2, 3]] * 4, [[5, 6], [7], [8, 9, 4], [5, 6]], PAD, 100)
    assert index.input_ids.tolist() == [[1, 2, 3, 5, 8, 9, 5]]
    assert index.position_ids.tolist() == [[0, 1, 2, 3, 3, 4, 3]]
    assert index.positions_N.tolist() == [2, 3, 2, 2, 4, 5, 2, 6]


@settings(deadline=None)
@given(seed=st.integers(0, 99), max_tokens=st.integers(1, 40), row_tokens=st.integers(0, 90))
def test_with_last_tokens_kept_every_token_has_its_place(seed, max_tokens, row_tokens):
    prompts, responses = groups(seed, 3, 3)
    index = pack_rows(prompts, responses, PAD, max_tokens, row_tokens, keep_last=True)
    flat = index.input_ids.flatten()
    assert flat[index.own_positions_N].tolist() == index.labels_N.tolist()
    positions = index.position_ids.flatten()
    assert (positions[index.own_positions_N] - positions[index.positions_N]).tolist() == [1] * len(index.labels_N)
    before = [token for p, r in zip(prompts, responses, strict=True) for token in [*p, *r][len(p) - 1 : -1]]
    assert flat[index.positions_N].tolist() == before


@settings(deadline=None)
@given(seed=st.integers(0, 99), row_tokens=st.integers(0, 200))
def test_long_rows_never_need_more_tokens_than_short_ones(seed, row_tokens):
    prompts, responses = groups(seed, 5, 1)
    packs = [len(p) + len(r) - 1 for p, r in zip(prompts, responses, strict=True)]
    n_rows, width = pack_rows(prompts, responses, PAD, 0, row_tokens).input_ids.shape
    assert max(packs) <= width <= max(row_tokens, *packs)
    assert (n_rows - 1) * (width - max(packs)) <= sum(packs)  # all rows but one lack less than the longest pack
    alone = pack_rows(prompts, responses, PAD, 0).input_ids.shape
    assert n_rows * width <= alone[0] * alone[1]


def test_four_long_items_do_not_leave_a_second_long_row_nearly_empty():
    prompts, responses = [[number] * 25 for number in (3, 4, 5, 6)], [[7] * 8] * 4
    assert pack_rows(prompts, responses, PAD, 0, row_tokens=120).input_ids.size == 4 * 32


ids = st.lists(st.integers(10, 99), min_size=1, max_size=5)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(ids, st.lists(st.integers(10, 99), max_size=5)), min_size=1, max_size=4))
def test_indices_pick_what_a_loop_picks(rows):
    if not any(response for _, response in rows):
        return
    prompts, responses = [list(p) for p, _ in rows], [list(r) for _, r in rows]
    index = pad_rows(prompts, responses, PAD)
    width = max(len(p) + len(r) for p, r in rows)
    input_ids = index.input_ids.numpy()
    assert input_ids.tolist() == [[*p, *r, *[PAD] * (width - len(p) - len(r))] for p, r in rows]

    flat, n = input_ids.reshape(-1), 0
    expected_RT = np.zeros((len(rows), max(map(len, responses))))
    for b, (prompt, response) in enumerate(rows):
        for t, token in enumerate(response):
            position = int(index.positions_N[n])
            assert position // width == b
            assert flat[position + 1] == token == int(index.labels_N[n])  # the position before the token predicts it
            assert position % width == len(prompt) + t - 1
            expected_RT[b, t] = n + 1
            n += 1
    assert n == len(index.labels_N)
    values_N = paddle.arange(1, n + 1, dtype="float32")
    np.testing.assert_array_equal(index.to_rows(values_N).numpy(), expected_RT)


def test_gradient_reaches_each_token_once():
    index = pad_rows([[1], [1, 2]], [[5, 6], [7]], PAD)
    values_N = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    weights_RT = paddle.to_tensor([[10.0, 20.0], [30.0, 99.0]])
    (index.to_rows(values_N) * weights_RT).sum().backward()
    assert values_N.grad.tolist() == [10, 20, 30]
