"""The critic's loss: closed form, gradient, and independence of how the batch is split."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from grrm.rl.critic.trainer import value_loss
from grrm.rl.losses.aggregation import count_denominators

MASK = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=np.float32)
OLD = np.array([[0.1, -0.3, 0.7], [0.2, 0.3, 0.4], [0.0, 0.0, 0.0]], dtype=np.float32)


def loss_of(values, returns, clip_range=0.5, mask=MASK, denominators=None):
    values_RT = paddle.to_tensor(values, stop_gradient=False)
    others = (paddle.to_tensor(one) for one in (OLD[: len(values)], returns, mask))
    output = value_loss(values_RT, *others, clip_range, denominators or count_denominators(mask, mask))
    output.loss.backward()
    return float(output.loss), values_RT.grad.numpy(), {name: float(one) for name, one in output.metrics.items()}


def by_loops(values, returns, clip_range=0.5, mask=MASK):
    """The loss in float64, one token after the other."""
    terms = []
    for r, t in np.argwhere(mask):
        value, target, old = (float(numbers[r, t]) for numbers in (values, returns, OLD))
        clipped = min(max(value, old - clip_range), old + clip_range)
        terms.append(0.5 * max((value - target) ** 2, (clipped - target) ** 2))
    return sum(terms) / len(terms)


@pytest.fixture
def drawn():
    draw = np.random.default_rng(7)
    return draw.normal(size=(2, 3, 3)).astype(np.float32)


def test_loss_is_the_mean_of_the_larger_squared_error_over_the_tokens(drawn):
    loss, _, metrics = loss_of(*drawn)
    assert loss == pytest.approx(by_loops(*drawn), rel=1e-6)
    assert metrics["value_loss"] == loss
    assert metrics["value_mean"] == pytest.approx(drawn[0][MASK > 0].mean(), rel=1e-6)


def test_gradient_is_that_of_the_formula_by_finite_differences(drawn):
    values, returns = drawn
    _, gradient, _ = loss_of(values, returns)
    step = 1e-4
    for r, t in np.ndindex(*MASK.shape):
        up, down = values.astype(np.float64), values.astype(np.float64)
        up[r, t] += step
        down[r, t] -= step
        numeric = (by_loops(up, returns) - by_loops(down, returns)) / (2 * step)
        assert gradient[r, t] == pytest.approx(numeric, abs=1e-5)


def test_a_value_beyond_the_range_is_not_pushed_on_towards_its_return_but_is_pulled_back_from_beyond_it():
    values = OLD[:1] + np.array([[0.8, 0.8, 0.2]], dtype=np.float32)
    returns = OLD[:1] + np.array([[2.0, 0.1, 2.0]], dtype=np.float32)
    _, gradient, metrics = loss_of(values, returns, mask=np.ones((1, 3), dtype=np.float32))
    assert gradient[0, 0] == 0.0
    assert gradient[0, 1] > 0
    assert gradient[0, 2] < 0
    assert metrics["value_clipfrac"] == pytest.approx(1 / 3)


def test_no_value_within_the_range_counts_as_clipped():
    draw = np.random.default_rng(2)
    for returns in draw.normal(size=(20, 3, 3)).astype(np.float32):
        values = (OLD + draw.uniform(-0.49, 0.49, (3, 3))).astype(np.float32)
        assert loss_of(values, returns, mask=np.ones((3, 3), dtype=np.float32))[2]["value_clipfrac"] == 0


def test_parts_of_a_step_add_up_to_its_loss_and_gradient(drawn):
    values, returns = drawn
    loss, gradient, metrics = loss_of(values, returns)
    counts = count_denominators(MASK, MASK)
    parts = [
        loss_of(values[r : r + 1], returns[r : r + 1], mask=MASK[r : r + 1], denominators=counts) for r in range(3)
    ]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), gradient, rtol=1e-5, atol=1e-7)
    for name, value in metrics.items():
        assert sum(part[2][name] for part in parts) == pytest.approx(value, rel=1e-5, abs=1e-7)


def test_what_stands_outside_the_mask_cannot_spread(drawn):
    values, returns = drawn
    strange = np.where(MASK > 0, returns, np.nan).astype(np.float32)
    assert loss_of(values, strange)[0] == loss_of(values, returns)[0]
    assert np.isfinite(loss_of(values, strange)[1]).all()
    assert not loss_of(values, strange)[1][MASK == 0].any()
