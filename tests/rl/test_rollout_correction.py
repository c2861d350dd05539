"""Importance weights of rollouts: closed forms, what they correct, and that the objective uses and logs them."""

from __future__ import annotations

import itertools

import numpy as np
import paddle
import pytest

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.derive_objective import policy_loss_config
from grrm.rl.losses import count_denominators, merge_metrics, policy_objective
from grrm.rl.losses.objective import rollout_correction

LN = np.log


def inputs(ratios, mask=None, advantages=1.0):
    """Responses whose tokens the trainer would have drawn `ratios` times as often as the engine did."""
    ratio_RT = np.asarray(ratios, dtype=np.float64)
    mask_RT = np.ones_like(ratio_RT) if mask is None else np.asarray(mask, dtype=np.float64)
    old_RT = np.full_like(ratio_RT, -1.5)
    columns = {
        "logprobs_RT": old_RT,
        "old_logprobs_RT": old_RT,
        "advantages_RT": np.full_like(ratio_RT, advantages),
        "mask_RT": mask_RT,
        "engine_logprobs_RT": old_RT - LN(ratio_RT),
    }
    tensors = {name: paddle.to_tensor(array) for name, array in columns.items()}
    tensors["logprobs_RT"].stop_gradient = False
    return LossInputs(**tensors)


def correct(given, **config):
    denominators = count_denominators(given.mask_RT.numpy(), given.advantages_RT.numpy())
    weights_RT, metrics = rollout_correction(given.masked(), policy_loss_config(**config), denominators)
    return weights_RT.numpy(), {name: float(value) for name, value in metrics.items()}


def test_token_weights_are_the_ratios_up_to_the_cap():
    weights_RT, metrics = correct(
        inputs([[2.0, 0.5, 3.0], [1.0, 8.0, 9.0]], [[1, 1, 1], [1, 1, 0]]), rollout_is="token"
    )
    np.testing.assert_allclose(weights_RT[:, :2], [[2.0, 0.5], [1.0, 2.0]], rtol=1e-12)
    assert weights_RT[0, 2] == 2.0
    assert metrics == pytest.approx(
        {"rollout_is_mean": (2 + 0.5 + 2 + 1 + 2) / 5, "rollout_is_max": 8.0, "rollout_is_capped": 2 / 5}
    )


def test_sequence_weights_are_the_product_of_a_responses_ratios():
    given = inputs([[2.0, 0.5, 3.0], [0.5, 0.5, 7.0], [1.5, 1.0, 1.0]], [[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    weights_RT, metrics = correct(given, rollout_is="sequence", rollout_is_cap=2.5)
    np.testing.assert_allclose(weights_RT[:2], [[2.5] * 3, [0.25] * 3], rtol=1e-12)
    assert metrics == pytest.approx(
        {"rollout_is_mean": (2.5 + 0.25) / 2, "rollout_is_max": 3.0, "rollout_is_capped": 1 / 2}
    )


RATIOS = [[2.0, 0.5, 3.0], [0.5, 0.5, 7.0], [1.5, 1.0, 1.0]]
WITHIN = {"rollout_is_cap": 2.5, "rollout_is_floor": 0.6}


@pytest.mark.parametrize(
    ("kind", "mode", "expected"),
    [
        ("token", "truncate", [[2.0, 0.6, 2.5], [0.6, 0.6, 2.5], [1.5, 1.0, 1.0]]),
        ("token", "mask", [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.5, 1.0, 1.0]]),
        ("sequence", "truncate", [[2.5] * 3, [1.75] * 3, [1.5] * 3]),
        ("sequence", "mask", [[0.0] * 3, [1.75] * 3, [1.5] * 3]),
    ],
)
def test_weights_beyond_either_bound_are_truncated_or_masked(kind, mode, expected):
    given = inputs(RATIOS)
    weights_RT, metrics = correct(given, rollout_is=kind, rollout_is_mode=mode, **WITHIN)
    np.testing.assert_allclose(weights_RT, expected, rtol=1e-12)
    shares = {"token": (2 / 9, 3 / 9), "sequence": (1 / 3, 0.0)}[kind]
    assert (metrics["rollout_is_capped"], metrics["rollout_is_floored"]) == pytest.approx(shares)
    assert metrics["rollout_is_mean"] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize(("kind", "learns"), [("token", [[1, 0, 0], [0, 0, 0]]), ("sequence", [[0] * 3, [1] * 3])])
def test_what_is_masked_has_no_policy_gradient_and_stays_in_the_denominator(kind, learns):
    given = inputs(RATIOS[:2])
    policy_objective(given, policy_loss_config(rollout_is=kind, rollout_is_mode="mask", **WITHIN)).loss.backward()
    weights = np.array(RATIOS[:2]) if kind == "token" else 1.75
    np.testing.assert_allclose(given.logprobs_RT.grad.numpy(), -weights * np.array(learns) / 6, rtol=1e-12)


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_an_engine_that_agrees_changes_nothing(kind):
    given = inputs(np.ones((2, 3)))
    assert (correct(given, rollout_is=kind)[0] == 1.0).all()
    corrected, plain = (policy_objective(given, policy_loss_config(rollout_is=one)) for one in (kind, "none"))
    assert float(corrected.loss) == float(plain.loss)


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_a_wild_ratio_is_capped_and_finite_in_float32(kind):
    given = inputs(np.ones((1, 4)))
    far = LossInputs(
        **{
            name: paddle.to_tensor(getattr(given, name).numpy().astype(np.float32))
            for name in ("logprobs_RT", "old_logprobs_RT", "advantages_RT", "mask_RT")
        },
        engine_logprobs_RT=paddle.full([1, 4], -500.0),
    )
    weights_RT, metrics = correct(far, rollout_is=kind)
    assert (weights_RT == 2.0).all()
    assert np.isfinite(list(metrics.values())).all()


def test_sequence_weights_turn_what_one_policy_draws_into_the_mean_of_another():
    """Over all sequences of two tokens out of three: E_q[w f] = E_p[f], exactly without a cap in effect."""
    rng = np.random.default_rng(0)

    def policy():
        """P(first), P(second | first)."""
        return rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3)

    (p1, p2), (q1, q2) = policy(), policy()
    sequences = list(itertools.product(range(3), repeat=2))
    of_p = np.array([[p1[a], p2[a][b]] for a, b in sequences])
    of_q = np.array([[q1[a], q2[a][b]] for a, b in sequences])
    values = rng.normal(size=len(sequences))
    weights_RT, _ = correct(inputs(of_p / of_q), rollout_is="sequence", rollout_is_cap=1e6)
    assert (of_q.prod(1) * weights_RT[:, 0] * values).sum() == pytest.approx((of_p.prod(1) * values).sum(), rel=1e-10)
    tokens_RT, _ = correct(inputs(of_p / of_q), rollout_is="token", rollout_is_cap=1e6)
    first = (of_q.prod(1) * tokens_RT[:, 0] * (np.array(sequences)[:, 0] == 0)).sum()
    assert first == pytest.approx(p1[0], rel=1e-10)


def test_the_policy_loss_is_weighted_and_no_other_term():
    """Advantage 1 and ratio 1: pg = -mean(w), and its gradient is -w / tokens."""
    given = inputs([[4.0, 0.25]])
    config = policy_loss_config(rollout_is="token", rollout_is_cap=2.0, sft_coeff=0.5)
    output = policy_objective(given, config)
    output.loss.backward()
    sft = 1.5  # -mean(A log p)
    assert float(output.loss) == pytest.approx(-(2.0 + 0.25) / 2 + 0.5 * sft, rel=1e-12)
    np.testing.assert_allclose(given.logprobs_RT.grad.numpy(), [[-2.0 / 2 - 0.25, -0.25 / 2 - 0.25]], rtol=1e-12)


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_weights_and_metrics_of_micro_batches_add_up(kind):
    ratios, mask = (
        np.exp(np.random.default_rng(3).normal(size=(4, 3))),
        np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]),
    )
    config = policy_loss_config(rollout_is=kind, rollout_is_cap=1.5)
    whole = policy_objective(inputs(ratios, mask), config)
    denominators = count_denominators(mask, np.ones_like(ratios))
    parts = [policy_objective(inputs(ratios[i : i + 1], mask[i : i + 1]), config, denominators) for i in range(4)]
    assert sum(float(part.loss) for part in parts) == pytest.approx(float(whole.loss), rel=1e-12)
    assert merge_metrics([part.metrics for part in parts]) == pytest.approx(merge_metrics([whole.metrics]), rel=1e-12)


def test_weights_without_the_engines_log_probabilities_are_refused():
    one = paddle.zeros([1, 2])
    with pytest.raises(ValueError, match="engine_logprobs_RT is missing"):
        policy_objective(LossInputs(one, one, one, paddle.ones([1, 2])), policy_loss_config(rollout_is="token"))


def test_a_weight_at_its_lower_bound_is_kept_where_smaller_ones_are_masked():
    weights_RT, _ = correct(inputs([[1.0, 0.5]]), rollout_is="token", rollout_is_mode="mask", rollout_is_floor=1.0)
    np.testing.assert_array_equal(weights_RT, [[1.0, 0.0]])
