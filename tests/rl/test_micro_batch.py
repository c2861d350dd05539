"""The index arithmetic of packed response tokens beside a loop that says what it means."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grrm.models.policy import TokenScores
from grrm.models.token_index import index_tokens
from grrm.rl.experience import Row
from grrm.rl.micro_batch import make_micro_batch, score_responses

PAD = 9
ids = st.lists(st.integers(10, 99), min_size=1, max_size=5)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(ids, st.lists(st.integers(10, 99), max_size=5)), min_size=1, max_size=4))
def test_indices_pick_what_a_loop_picks(rows):
    if not any(response for _, response in rows):
        return
    prompts, responses = [list(p) for p, _ in rows], [list(r) for _, r in rows]
    index = index_tokens(prompts, responses, PAD)
    width = max(len(p) + len(r) for p, r in rows)
    input_ids = index.input_ids.numpy()
    assert input_ids.tolist() == [[*p, *r, *[PAD] * (width - len(p) - len(r))] for p, r in rows]

    flat, n = input_ids.reshape(-1), 0
    expected_BR = np.zeros((len(rows), max(map(len, responses))))
    for b, (prompt, response) in enumerate(rows):
        for t, token in enumerate(response):
            position = int(index.positions_N[n])
            assert position // width == b
            assert flat[position + 1] == token == int(index.labels_N[n])  # the position before the token predicts it
            assert position % width == len(prompt) + t - 1
            expected_BR[b, t] = n + 1
            n += 1
    assert n == len(index.labels_N)
    values_N = paddle.arange(1, n + 1, dtype="float32")
    np.testing.assert_array_equal(index.to_rows(values_N).numpy(), expected_BR)


def test_gradient_reaches_each_token_once():
    index = index_tokens([[1], [1, 2]], [[5, 6], [7]], PAD)
    values_N = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    weights_BR = paddle.to_tensor([[10.0, 20.0], [30.0, 99.0]])
    (index.to_rows(values_N) * weights_BR).sum().backward()
    assert values_N.grad.tolist() == [10, 20, 30]


def row(n: int, old: bool = True) -> Row:
    steps = np.arange(1, n + 1)
    return Row([1, 2], list(range(10, 10 + n)), steps / 2, np.ones(n), -steps, -2 * steps if old else None, None)


def test_batch_is_zero_beyond_each_response():
    batch = make_micro_batch([row(1), row(3)], PAD)
    assert batch.advantages_BR.tolist() == [[0.5, 0, 0], [0.5, 1, 1.5]]
    assert batch.mask_BR.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.engine_logprobs_BR.tolist() == [[-1, 0, 0], [-1, -2, -3]]
    assert batch.old_logprobs_BR.tolist() == [[-2, 0, 0], [-2, -4, -6]]
    assert batch.ref_logprobs_BR is None


def test_log_probabilities_that_some_rows_lack_are_left_out():
    assert make_micro_batch([row(1), row(2, old=False)], PAD).old_logprobs_BR is None


class Countdown(paddle.nn.Layer):
    """Scores a token with minus its id over the temperature, and notes how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def forward(self, input_ids, positions_N, labels_N, temperature, **kwargs):
        assert not self.training
        self.batches.append(input_ids.shape[0])
        scores_N = -labels_N.astype("float32") / temperature
        return TokenScores(scores_N, scores_N)


@pytest.mark.parametrize("training", [True, False])
def test_responses_are_scored_in_batches_and_the_mode_is_restored(training):
    model = Countdown()
    model.train() if training else model.eval()
    responses = [[10], [20, 21], [30, 31, 32]]
    scored = score_responses(model, [[1], [1, 2], [1]], responses, pad_id=PAD, batch_size=2, temperature=2.0)
    assert [row.tolist() for row in scored] == [[-token / 2 for token in response] for response in responses]
    assert model.batches == [2, 1]
    assert model.training is training
