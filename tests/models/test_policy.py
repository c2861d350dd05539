"""Token scores beside NumPy and beside the model's own logits."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.rl_processes import TinyWorld
from support.tiny_models import build_model

from grrm.errors import UserError
from grrm.models.packing import pad_rows
from grrm.models.policy import freeze_layers, load_policy, policy_class
from grrm.models.token_scores import score_hidden, score_logits


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0], ids=["uniform", "usual", "peaked"])
def test_scores_are_log_softmax_and_its_entropy(scale):
    rng = np.random.default_rng(0)
    logits_NV, labels_N = rng.normal(size=(6, 11)) * scale + 5.0, rng.integers(0, 11, 6)
    scores = score_logits(paddle.to_tensor(logits_NV.astype("float32")), paddle.to_tensor(labels_N))
    expected = log_softmax(logits_NV)
    np.testing.assert_allclose(scores.logprobs_N.numpy(), expected[np.arange(6), labels_N], rtol=1e-5, atol=2e-5)
    entropy = -(np.exp(expected) * expected).sum(-1)
    np.testing.assert_allclose(scores.entropy_N.numpy(), entropy, rtol=1e-4, atol=5e-5)


def test_least_probable_tokens_keep_their_gradient_where_paddle_clamps_their_value():
    logits_NV = paddle.to_tensor([[100.0, 0.0]], stop_gradient=False)
    scores = score_logits(logits_NV, paddle.to_tensor([1]))
    assert -100.5 <= float(scores.logprobs_N) <= -63.5
    scores.logprobs_N.sum().backward()
    np.testing.assert_allclose(logits_NV.grad.numpy(), [[-1.0, 1.0]], atol=1e-6)


def test_gradient_is_that_of_log_softmax_and_entropy_has_none():
    logits_NV = paddle.to_tensor([[1.0, 2.0, 0.5]], stop_gradient=False)
    scores = score_logits(logits_NV, paddle.to_tensor([1]))
    assert scores.entropy_N.stop_gradient
    scores.logprobs_N.sum().backward()
    expected = np.eye(3)[1] - np.exp(log_softmax(np.array([1.0, 2.0, 0.5])))
    np.testing.assert_allclose(logits_NV.grad.numpy()[0], expected, atol=1e-6)


def test_entropy_has_its_own_gradient_where_it_is_asked_for():
    logits_NV = paddle.to_tensor([[1.0, 2.0, 0.5]], stop_gradient=False)
    scores = score_logits(logits_NV, paddle.to_tensor([1]), entropy_gradient=True)
    scores.entropy_N.sum().backward()
    logprobs = log_softmax(np.array([1.0, 2.0, 0.5]))
    entropy = -(np.exp(logprobs) * logprobs).sum()
    np.testing.assert_allclose(scores.entropy_N.numpy(), [entropy], atol=1e-6)
    np.testing.assert_allclose(logits_NV.grad.numpy()[0], -np.exp(logprobs) * (logprobs + entropy), atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_forward_equals_the_log_softmax_of_full_logits_row_by_row(world: TinyWorld, temperature: float):
    policy = load_policy(world.policy)
    policy.eval()
    prompts, responses = [[5, 6, 7], [8], [9, 10]], [[11, 12], [13, 14, 15, 16], [17]]
    tokens = pad_rows(prompts, responses, pad_id=0)
    with paddle.no_grad():
        hidden = policy(**tokens.model_inputs()).hidden_NH
        scores = score_hidden(hidden, policy.lm_head, tokens.labels_N, temperature=temperature)
        expected, entropy = [], []
        for prompt, response in zip(prompts, responses, strict=True):
            logits = policy(paddle.to_tensor([prompt + response]))
            logits = logits[0] if isinstance(logits, tuple) else logits
            logprobs_TV = log_softmax(logits.numpy()[0].astype(np.float64) / temperature)[len(prompt) - 1 : -1]
            expected += [logprobs_TV[t, token] for t, token in enumerate(response)]
            entropy += list(-(np.exp(logprobs_TV) * logprobs_TV).sum(-1))
    np.testing.assert_allclose(scores.logprobs_N.numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(scores.entropy_N.numpy(), entropy, atol=1e-4)
    assert np.std(expected) > 0


def test_saved_policy_is_an_ordinary_checkpoint(world: TinyWorld):
    policy = load_policy(world.policy)
    assert type(policy).__name__ == "Qwen2ForCausalLM"
    assert {str(parameter.dtype) for parameter in policy.parameters()} == {"paddle.float32"}


@pytest.mark.parametrize("tied", [True, False])
def test_weights_without_a_head_are_taken_without_a_warning_only_where_it_is_tied(recwarn, tied):
    model = policy_class("qwen2")(build_model(tie_word_embeddings=tied).config)
    weights = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    model.set_state_dict(weights)
    told = [str(warning.message) for warning in recwarn if "lm_head" in str(warning.message)]
    assert len(told) == (0 if tied else 1)


def test_frozen_layers_and_embeddings_get_no_gradient():
    model = build_model(num_hidden_layers=3)
    freeze_layers(model, 0)
    assert all(not parameter.stop_gradient for parameter in model.parameters())
    freeze_layers(model, 2)
    kept = {name for name, parameter in model.named_parameters() if parameter.stop_gradient}
    parts = ("qwen2.layers.0.", "qwen2.layers.1.", "qwen2.embed_tokens.")
    assert kept == {name for name, _ in model.named_parameters() if name.startswith(parts)}
    with pytest.raises(UserError, match="frozen_layers is 9, but the model has 3 layers"):
        freeze_layers(model, 9)
