"""Losses whose logits are computed once and never all at the same time: the same loss, gradients and metrics."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.output_layers import FORMS, set_rows_at_once, use_form
from support.tiny_policy import random_policy

from grrm.models import chunked_loss, linear_scores
from grrm.models import policy as policies
from grrm.rl.batch_loss import BatchLoss
from grrm.rl.experience import Row
from grrm.rl.losses.aggregation import count_denominators
from grrm.rl.losses.config import PolicyLossConfig
from grrm.rl.micro_batch import make_micro_batch

LENGTHS = (3, 2, 0, 9, 1, 4, 4, 0)
CONFIGS = {
    "token_clip": PolicyLossConfig(kl_loss_coeff=0.1, entropy_coeff=0.05, sft_coeff=0.1),
    "gspo": PolicyLossConfig(policy_loss="gspo", clip_low=0.3, clip_high=0.4, loss_agg_mode="seq-mean-token-mean"),
    "sequences": PolicyLossConfig(loss_agg_mode="seq-mean-token-sum", dual_clip=3.0, kl_loss_coeff=0.2),
}


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    set_rows_at_once(monkeypatch, 5)
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


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pack_tokens", [0, 32])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_loss_gradients_and_metrics_are_those_of_all_logits(monkeypatch, form, name, pack_tokens, tied):
    model, rows, config = make_model(tied), make_rows(), CONFIGS[name]
    batch = make_micro_batch(rows, 0, pack_tokens)
    denominators = count_denominators(batch.mask_BR.numpy(), batch.advantages_BR.numpy())

    def run():
        model.clear_gradients()
        loss_of = BatchLoss(batch, config, denominators)
        inputs = {**batch.index.model_inputs(), "lengths_B": batch.index.lengths_B, "loss_of": loss_of}
        loss = model(**inputs, temperature=0.7, entropy_gradient=config.entropy_coeff != 0) * 2.0
        loss.backward()
        gradients = {key: p.grad.numpy() for key, p in model.named_parameters() if p.grad is not None}
        return float(loss), gradients, loss_of

    loss, gradients, whole = run()
    monkeypatch.setattr(linear_scores, "LOGITS_AT_ONCE", 0)
    found, of_parts, parts = run()
    assert len(parts._gaps) == 4  # 3 + 2 + 0, 9 alone, 1 + 4, 4 + 0
    assert found == pytest.approx(loss, rel=1e-5)
    assert gradients.keys() == of_parts.keys()
    for key, gradient in gradients.items():
        np.testing.assert_allclose(of_parts[key], gradient, rtol=2e-3, atol=2e-5, err_msg=key)
    for one, other in zip(parts.metrics(), whole.metrics(), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


def head_of(weight: np.ndarray) -> SimpleNamespace:
    made = paddle.to_tensor(weight.astype("float32"))
    made.stop_gradient = False
    return SimpleNamespace(weight=made, transpose_y=True)


def loss_of_logprobs(scores, _rows) -> paddle.Tensor:
    return -scores[0].sum()


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_is_frozen_gets_no_gradient(form, frozen):
    hidden, head = paddle.ones([7, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient, head.weight.stop_gradient = frozen == "hidden", frozen == "weight"
    labels = paddle.zeros([7], dtype="int64")
    chunked_loss.chunked_loss(hidden, head, labels, [4, 3], loss_of_logprobs).backward()
    assert (hidden.grad is None) == (frozen == "hidden")
    assert (head.weight.grad is None) == (frozen == "weight")


def test_products_stay_in_the_type_of_the_weights_under_automatic_casts(monkeypatch, form):
    casts = []
    real = paddle.amp.auto_cast
    monkeypatch.setattr(paddle.amp, "auto_cast", lambda *a, **k: casts.append(k) or real(*a, **k))
    hidden, head = paddle.ones([2, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient = False
    chunked_loss.chunked_loss(hidden, head, paddle.zeros([2], dtype="int64"), [2], loss_of_logprobs)
    assert casts == [{"enable": False}] * (1 if form == "kernels" else 2)  # around everything, and around logits


def test_float16_takes_the_path_whose_gradients_are_computed_after_the_loss_is_scaled(monkeypatch):
    model, batch = make_model(tied=False), make_micro_batch(make_rows(), 0, 0)
    monkeypatch.setattr(linear_scores, "LOGITS_AT_ONCE", 0)
    monkeypatch.setattr(policies, "chunked_loss", lambda *_: pytest.fail("taken with float16"))
    monkeypatch.setattr(policies, "linear_scores", lambda *_: (paddle.zeros([sum(LENGTHS)]),) * 3)
    model.lm_head.weight = paddle.create_parameter(model.lm_head.weight.shape, "float16")
    model.lm_head.weight.is_distributed = False
    inputs = {**batch.index.model_inputs(), "lengths_B": batch.index.lengths_B}
    assert float(model(**inputs, loss_of=lambda scores, rows: scores.logprobs_N.sum())) == 0.0


def test_a_loss_without_a_gradient_has_zeros(form):
    hidden, head = paddle.ones([2, 8]), head_of(np.ones((5, 8)))
    hidden.stop_gradient = False
    labels = paddle.zeros([2], dtype="int64")
    loss = chunked_loss.chunked_loss(hidden, head, labels, [2], lambda scores, _: scores[0].detach().sum())
    loss.backward()
    assert float(loss) == pytest.approx(-2 * np.log(5), rel=1e-5)
    assert not hidden.grad.numpy().any()
    assert not head.weight.grad.numpy().any()


def test_labels_outside_the_vocabulary_are_an_error(form):
    labels = paddle.to_tensor([0, 5])
    with pytest.raises(ValueError, match="labels from 0 to 5 of a vocabulary of 5"):
        chunked_loss.chunked_loss(paddle.ones([2, 8]), head_of(np.ones((5, 8))), labels, [2], loss_of_logprobs)
