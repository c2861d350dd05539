"""Importance weights of rollouts: closed forms, what they correct, and that the objective uses and logs them."""

from __future__ import annotations

import itertools

import numpy as np
import paddle
import pytest

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.derive_objective import policy_loss_config
from grrm.rl.losses.aggregation import count_denominators
from grrm.rl.losses.objective import policy_objective, rollout_correction

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


def test_weights_without_the_engines_log_probabilities_are_refused():
    one = paddle.zeros([1, 2])
    with pytest.raises(ValueError, match="engine_logprobs_RT is missing"):
        policy_objective(LossInputs(one, one, one, paddle.ones([1, 2])), policy_loss_config(rollout_is="token"))


def test_a_weight_at_its_lower_bound_is_kept_where_smaller_ones_are_masked():
    weights_RT, _ = correct(inputs([[1.0, 0.5]]), rollout_is="token", rollout_is_mode="mask", rollout_is_floor=1.0)
    np.testing.assert_array_equal(weights_RT, [[1.0, 0.0]])
