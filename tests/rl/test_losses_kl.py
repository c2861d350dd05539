"""KL estimators: values, gradients, clamps, straight-through."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from grrm.rl.losses.objective import kl_penalty

DELTA = np.array([[-2.0, -0.5, -1e-9, 0.25, 1.5]])  # reference minus policy


def value_and_gradient(kind, delta=DELTA, clip_range=10.0):
    logprobs_RT = paddle.to_tensor(np.full_like(delta, -1.5), stop_gradient=False)
    kl_RT = kl_penalty(logprobs_RT, paddle.to_tensor(delta - 1.5), kind, clip_range)
    kl_RT.sum().backward()
    return kl_RT.numpy(), logprobs_RT.grad.numpy()


@pytest.mark.parametrize(
    ("kind", "value", "gradient"),
    [
        ("k1", -DELTA, np.ones_like(DELTA)),
        ("abs", np.abs(DELTA), -np.sign(DELTA)),
        ("k2", DELTA**2 / 2, -DELTA),
        ("k3", np.exp(DELTA) - DELTA - 1, 1 - np.exp(DELTA)),
        ("kl", -DELTA, np.ones_like(DELTA)),
        ("mse", DELTA**2 / 2, -DELTA),
        ("low_var_kl", np.exp(DELTA) - DELTA - 1, 1 - np.exp(DELTA)),
        ("k1+", -DELTA, -DELTA),
        ("abs+", np.abs(DELTA), -DELTA),
        ("k3+", np.exp(DELTA) - DELTA - 1, -DELTA),
        ("low_var_kl+", np.exp(DELTA) - DELTA - 1, -DELTA),
    ],
)
def test_estimator_has_its_value_and_gradient(kind, value, gradient):
    actual_value, actual_gradient = value_and_gradient(kind)
    np.testing.assert_allclose(actual_value, value, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(actual_gradient, gradient, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3", "k3+"])
def test_equal_distributions_have_no_divergence(kind):
    assert not value_and_gradient(kind, np.zeros((1, 3)))[0].any()


def test_k3_is_clipped_without_gradient_beyond():
    value, gradient = value_and_gradient("k3", np.array([[30.0, 800.0, -40.0, 1.0]]))
    np.testing.assert_allclose(value, [[10, 10, 10, np.e - 2]])
    np.testing.assert_allclose(gradient, [[0, 0, 0, 1 - np.e]])


def test_k3_keeps_values_below_a_wide_clip_range():
    np.testing.assert_allclose(value_and_gradient("k3", np.array([[-40.0]]), clip_range=50.0)[0], [[39.0]])


def test_small_k3_does_not_drown_in_rounding():
    assert value_and_gradient("k3", np.array([[1e-7]]))[0][0, 0] == pytest.approx(5e-15, rel=1e-2)
