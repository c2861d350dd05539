"""Losses whose logits are computed once and never all at the same time: the same loss, gradients and metrics."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.tiny_policy import random_policy
from support.token_scores import FORMS, head_of, set_chunk_tokens, use_form

from grrm.algorithms.policy_losses import POLICY_LOSSES
from grrm.config.derive_objective import policy_loss_config
from grrm.models import chunked_loss as chunked
from grrm.models import token_scores
from grrm.models.packing import pad_rows
from grrm.rl.batch import BatchObjective, make_batch
from grrm.rl.experience import Row
from grrm.rl.losses.aggregation import count_denominators

LENGTHS = (3, 2, 0, 9, 1, 4, 4, 0)
CONFIGS = {
    **{name: policy_loss_config(policy_loss=name, kl_loss_coeff=0.1, entropy_coeff=0.05) for name in POLICY_LOSSES},
    "all terms": policy_loss_config(kl_loss_coeff=0.1, entropy_coeff=0.05, sft_coeff=0.1),
    "sequences": policy_loss_config(loss_agg_mode="seq-mean-token-sum", dual_clip_ratio=3.0, kl_loss_coeff=0.2),
}


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    set_chunk_tokens(monkeypatch, 5)
    return use_form(monkeypatch, request.param)


def make_model(tied: bool):
    model = random_policy(tie_word_embeddings=tied, initializer_range=0.2)
    model.eval()
    return model


def make_rows() -> list[Row]:
    rng = np.random.default_rng(1)
    rows = []
    for number, length in enumerate(LENGTHS):
        floats = [rng.normal(-2, 0.5, length).astype("float32") for _ in range(3)]
        advantages = np.full(length, rng.normal(), dtype="float32")
        prompt, answer = [5, 6, 7 + number // 2], rng.integers(0, 40, length).tolist()
        rows.append(Row(prompt, answer, advantages, np.ones(length, dtype="float32"), *floats))
    return rows


@pytest.mark.parametrize(
    ("pack_tokens", "tied"),
    [(0, True), (32, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(0, False), (32, True)])],
)
@pytest.mark.parametrize("name", list(CONFIGS))
def test_loss_gradients_and_metrics_are_those_of_all_logits(monkeypatch, form, name, pack_tokens, tied):
    model, rows, config = make_model(tied), make_rows(), CONFIGS[name]
    batch = make_batch(rows, 0, pack_tokens)
    denominators = count_denominators(batch.mask_RT.numpy(), batch.advantages_RT.numpy())

    def run():
        model.clear_gradients()
        objective = BatchObjective(batch, config, denominators)
        options = {"temperature": 0.7, "entropy_gradient": config.entropy_coeff != 0}
        hidden = model(**batch.tokens.model_inputs()).hidden_NH
        loss = chunked.chunked_loss(hidden, model.lm_head, batch.tokens, objective, **options) * 2.0
        loss.backward()
        gradients = {key: p.grad.numpy() for key, p in model.named_parameters() if p.grad is not None}
        return float(loss), gradients, objective

    loss, gradients, whole = run()
    monkeypatch.setattr(token_scores, "LOGITS_AT_ONCE", 0)
    found, of_parts, parts = run()
    assert len(parts._gaps) == 4  # 3 + 2 + 0, 9 alone, 1 + 4, 4 + 0
    assert found == pytest.approx(loss, rel=1e-5, abs=2e-5)
    assert gradients.keys() == of_parts.keys()
    for key, gradient in gradients.items():
        np.testing.assert_allclose(of_parts[key], gradient, rtol=2e-3, atol=2e-5, err_msg=key)
    for one, other in zip(parts.metrics(), whole.metrics(), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


@pytest.fixture
def always_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_scores, "LOGITS_AT_ONCE", 0)


def loss_over(hidden, head, labels, lengths, loss_of) -> paddle.Tensor:
    tokens = pad_rows([[1]] * len(lengths), [[0] * length for length in lengths], 0)
    tokens.labels_N = labels
    return chunked.chunked_loss(hidden, head, tokens, loss_of)


def loss_of_logprobs(scores, _responses) -> paddle.Tensor:
    return -scores.logprobs_N.sum()


@pytest.mark.usefixtures("always_in_chunks")
@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_is_frozen_gets_no_gradient(form, frozen):
    hidden, head = paddle.ones([7, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient, head.weight.stop_gradient = frozen == "hidden", frozen == "weight"
    labels = paddle.zeros([7], dtype="int64")
    loss_over(hidden, head, labels, [4, 3], loss_of_logprobs).backward()
    assert (hidden.grad is None) == (frozen == "hidden")
    assert (head.weight.grad is None) == (frozen == "weight")


@pytest.mark.usefixtures("always_in_chunks")
def test_products_stay_in_the_type_of_the_weights_under_automatic_casts(monkeypatch, form):
    casts = []
    real = paddle.amp.auto_cast
    monkeypatch.setattr(paddle.amp, "auto_cast", lambda *a, **k: casts.append(k) or real(*a, **k))
    hidden, head = paddle.ones([2, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient = False
    loss_over(hidden, head, paddle.zeros([2], dtype="int64"), [2], loss_of_logprobs)
    assert casts == [{"enable": False}] * (1 if form == "kernels" else 2)  # around everything, and around logits


@pytest.mark.usefixtures("always_in_chunks")
def test_float16_takes_the_path_whose_gradients_are_computed_after_the_loss_is_scaled(monkeypatch):
    monkeypatch.setattr(chunked.ChunkedLoss, "apply", lambda *_: pytest.fail("taken with float16"))
    monkeypatch.setattr(token_scores, "linear_scores", lambda *_: (paddle.zeros([2]),) * 3)
    head = head_of(np.ones((5, 8)))
    head.weight = head.weight.astype("float16")
    head.weight.is_distributed = False
    labels = paddle.zeros([2], dtype="int64")
    assert float(loss_over(paddle.ones([2, 8]), head, labels, [2], loss_of_logprobs)) == 0.0


@pytest.mark.usefixtures("always_in_chunks")
def test_a_loss_without_a_gradient_has_zeros(form):
    hidden, head = paddle.ones([2, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient = False
    labels = paddle.zeros([2], dtype="int64")
    loss = loss_over(hidden, head, labels, [2], lambda scores, _: scores.logprobs_N.detach().sum())
    loss.backward()
    assert float(loss) == pytest.approx(-2 * np.log(5), rel=1e-5)
    assert not hidden.grad.numpy().any()
    assert not head.weight.grad.numpy().any()


@pytest.mark.usefixtures("always_in_chunks")
def test_labels_outside_the_vocabulary_are_an_error(form):
    labels = paddle.to_tensor([0, 5])
    with pytest.raises(ValueError, match="labels from 0 to 5 of a vocabulary of 5"):
        loss_over(paddle.ones([2, 8]), head_of(np.ones((5, 8))), labels, [2], loss_of_logprobs)
