"""Token scores in chunks: what the logits of all tokens at once would give, without having them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.tiny_policy import random_policy
from support.token_scores import FORMS, head_of, set_chunk_tokens, token_scores, use_form

from grrm.models import token_scores as scoring
from grrm.models.packing import lay_out, pack_rows
from grrm.models.policy import TokenUse


@pytest.fixture(params=FORMS, autouse=True)
def form(request, monkeypatch):
    return use_form(monkeypatch, request.param)


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(("rows", "at_once"), [(1, 4), (4, 4), (11, 4), (3, 256)])
def test_scores_and_gradients_are_those_of_all_logits(monkeypatch, transposed, rows, at_once):
    set_chunk_tokens(monkeypatch, at_once)
    rng = np.random.default_rng(rows)
    hidden_NH, weight_VH = rng.normal(size=(rows, 24)), rng.normal(size=(37, 24))
    labels_N, g_3N = rng.integers(0, 37, rows), rng.normal(size=(3, rows))
    hidden, head = paddle.to_tensor(hidden_NH.astype("float32")), head_of(weight_VH, transposed)
    hidden.stop_gradient = False
    found = scoring.linear_scores(hidden, head, paddle.to_tensor(labels_N))
    wanted, gradient_NV = token_scores(hidden_NH @ weight_VH.T, labels_N, g_3N)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-4)
    sum((one * paddle.to_tensor(g.astype("float32"))).sum() for one, g in zip(found, g_3N, strict=True)).backward()
    np.testing.assert_allclose(hidden.grad.numpy(), gradient_NV @ weight_VH, rtol=1e-3, atol=1e-4)
    of_weight = gradient_NV.T @ hidden_NH
    np.testing.assert_allclose(head.weight.grad.numpy(), of_weight if transposed else of_weight.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen):
    hidden, head = paddle.ones([3, 8]), head_of(np.ones((5, 8)), True)
    hidden.stop_gradient, head.weight.stop_gradient = frozen == "hidden", frozen == "weight"
    scoring.linear_scores(hidden, head, paddle.to_tensor([0, 1, 2]))[0].sum().backward()
    assert (hidden.grad is None) == (frozen == "hidden")
    assert (head.weight.grad is None) == (frozen == "weight")


def test_labels_outside_the_vocabulary_are_an_error():
    with pytest.raises(ValueError, match="labels from 0 to 5 of a vocabulary of 5"):
        scoring.linear_scores(paddle.ones([2, 8]), head_of(np.ones((5, 8)), True), paddle.to_tensor([0, 5]))


def test_products_are_of_the_type_of_the_weights_and_scores_are_float32():
    rng = np.random.default_rng(5)
    hidden_NH, weight_VH = rng.normal(size=(6, 16)), rng.normal(size=(11, 16))
    labels_N, g_3N = rng.integers(0, 11, 6), rng.normal(size=(3, 6))
    hidden, weight = paddle.to_tensor(hidden_NH.astype("float32")), paddle.to_tensor(weight_VH)  # no bfloat16 on CPU
    hidden.stop_gradient = weight.stop_gradient = False
    found = scoring.linear_scores(hidden, SimpleNamespace(weight=weight, transpose_y=True), paddle.to_tensor(labels_N))
    wanted, gradient_NV = token_scores(hidden_NH @ weight_VH.T, labels_N, g_3N)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == paddle.float32
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-5)
    sum((one * paddle.to_tensor(g.astype("float32"))).sum() for one, g in zip(found, g_3N, strict=True)).backward()
    assert (hidden.grad.dtype, weight.grad.dtype) == (paddle.float32, paddle.float64)
    np.testing.assert_allclose(weight.grad.numpy(), gradient_NV.T @ hidden_NH, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_scores_of_a_policy_are_the_same_in_chunks(monkeypatch, tied):
    model = random_policy(tie_word_embeddings=tied, initializer_range=0.2)
    model.eval()
    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, 40, (2, 9)))
    positions, labels = paddle.to_tensor([0, 3, 8, 12]), paddle.to_tensor([5, 6, 7, 8])
    taken = []

    def run() -> list[np.ndarray]:
        model.clear_gradients()
        hidden = model(ids, positions_N=positions).hidden_NH
        scores = scoring.score_hidden(hidden, model.lm_head, labels, temperature=0.7, entropy_gradient=True)
        (scores.logprobs_N.square().sum() + 0.1 * scores.entropy_N.sum()).backward()
        return [one.numpy() for one in scores] + [p.grad.numpy() for p in model.parameters() if p.grad is not None]

    whole = run()
    real = scoring.linear_scores
    monkeypatch.setattr(scoring, "linear_scores", lambda *a: taken.append(1) or real(*a))
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", 0)
    parts = run()
    assert taken
    assert len(whole) == len(parts)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("training", [True, False])
def test_responses_are_scored_in_batches_and_the_mode_is_restored(monkeypatch, training):
    model = random_policy(initializer_range=0.2)
    model.train() if training else model.eval()
    prompts, responses = [[1], [1, 2], [1]], [[10], [20, 21], [30, 31, 32]]
    batches, real = [], type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, **given: batches.append(given) or real(self, **given))
    sizes = {"pad_id": 0, "temperature": 2.0}
    together = scoring.score_responses(model, prompts, responses, batch_size=2, **sizes)
    assert [len(batch["input_ids"]) for batch in batches] == [2, 1]
    assert model.training is training
    for prompt, response, found in zip(prompts, responses, together, strict=True):
        (alone,) = scoring.score_responses(model, [prompt], [response], batch_size=1, **sizes)
        assert len(found) == len(response)
        np.testing.assert_allclose(found, alone, atol=1e-5)


class CallableHead(SimpleNamespace):
    def __call__(self, hidden: paddle.Tensor) -> paddle.Tensor:
        return paddle.matmul(hidden, self.weight, transpose_y=self.transpose_y)


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("room", [0, 2**20], ids=["chunks", "at-once"])
def test_gap_to_the_largest_logit_is_beside_the_log_probability(monkeypatch, transposed, room):
    set_chunk_tokens(monkeypatch, 4)
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", room)
    rng = np.random.default_rng(1)
    hidden_NH, weight_VH = rng.normal(size=(11, 24)), rng.normal(size=(37, 24))
    logits_NV = hidden_NH @ weight_VH.T
    labels_N = np.where(np.arange(11) % 2, logits_NV.argmax(-1), rng.integers(0, 37, 11))
    hidden, head = paddle.to_tensor(hidden_NH.astype("float32")), head_of(weight_VH, transposed)
    hidden.stop_gradient = False
    logprobs, gaps = scoring.score_beside_largest(hidden, CallableHead(**vars(head)), paddle.to_tensor(labels_N))
    gradients = np.stack([np.ones(11), np.zeros(11), np.zeros(11)])
    (wanted, _, _), gradient_NV = token_scores(logits_NV, labels_N, gradients)
    np.testing.assert_allclose(logprobs.numpy(), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gaps.numpy(), logits_NV.max(-1) - logits_NV[np.arange(11), labels_N], atol=1e-4)
    assert (gaps.numpy() >= 0).all()
    (logprobs.sum() + gaps.sum()).backward()  # the gap has no gradient
    np.testing.assert_allclose(hidden.grad.numpy(), gradient_NV @ weight_VH, rtol=1e-3, atol=1e-4)


# --- tokens of a batch are counted as they were laid out, padded or packed


PROMPTS = [[5, 6, 7], [5, 6, 7], [8, 9]]
RESPONSES = [[1, 2], [3, 4, 5, 6], [7]]


@pytest.mark.parametrize(
    ("pack_tokens", "expected"),
    [(0, (5 + 7 + 3, 3 * 7)), (16, (3 + 1 + 3 + 2, 9))],  # packed, last tokens are not in the input
    ids=["padded", "packed"],
)
def test_padding_is_what_is_no_prompt_and_no_response(pack_tokens: int, expected: tuple[int, int]) -> None:
    use, tokens = TokenUse(), lay_out(PROMPTS, RESPONSES, 0, pack_tokens)
    for _ in range(2):
        use.add(tokens.input_ids, tokens.positions_N, tokens.attention_ranges_3BT)
    assert use.take() == tuple(2 * number for number in expected)
    assert use.take() == (0, 0)


def test_only_passes_with_gradients_count(make_model, tmp_path) -> None:
    from grrm.models.policy import load_policy

    make_model("llama").save_pretrained(str(tmp_path), safe_serialization=True)
    policy, tokens = load_policy(tmp_path), pack_rows(PROMPTS, RESPONSES, 0, 16)
    with paddle.no_grad():
        policy(**tokens.model_inputs())
    assert policy.token_use.take() == (0, 0)
    policy(**tokens.model_inputs())
    assert policy.token_use.take() == (9, 14)
