"""Aggregation in closed form, the SFT term, and settings that are refused."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.derive_objective import policy_loss_config
from grrm.config.keys.objective import PolicyLossConfig
from grrm.errors import UserError
from grrm.rl.losses import aggregate, policy_objective, positive_advantage_nll

LOSS_RT = np.array([[1.0, 2.0, 99.0], [3.0, 5.0, 7.0], [np.nan, np.inf, 99.0]])
MASK_RT = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 18 / 5),
        ("seq-mean-token-sum", 18 / 2),
        ("seq-mean-token-mean", (1.5 + 5) / 2),
        ("seq-mean-token-sum-norm", 18 / 3),
    ],
)
def test_aggregation_skips_padding_and_empty_rows(mode, expected):
    loss_RT = paddle.to_tensor(LOSS_RT, stop_gradient=False)
    loss = aggregate(loss_RT, paddle.to_tensor(MASK_RT), mode)
    loss.backward()
    assert float(loss) == pytest.approx(expected, rel=1e-12)
    assert (loss_RT.grad.numpy() != 0).tolist() == (MASK_RT > 0).tolist()
    share = aggregate(paddle.to_tensor(LOSS_RT), paddle.to_tensor(MASK_RT), mode, denominator=50.0)
    assert float(share) == pytest.approx((1.5 + 5 if mode == "seq-mean-token-mean" else 18) / 50, rel=1e-12)


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "seq-mean-token-mean"])
def test_a_response_of_one_token_is_a_sequence(mode):
    loss_RT, mask_RT = np.array([[4.0, 4.0], [2.0, 99.0]]), np.array([[1, 1], [1, 0]])
    expected = (8 + 2) / 2 if mode == "seq-mean-token-sum" else (4 + 2) / 2
    assert float(aggregate(paddle.to_tensor(loss_RT), paddle.to_tensor(mask_RT), mode)) == expected


def test_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="unknown aggregation"):
        aggregate(paddle.ones([1, 1]), paddle.ones([1, 1]), "mean")


def test_sft_term_learns_from_better_than_average_responses_only():
    logprobs_RT = paddle.to_tensor(np.array([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]]), stop_gradient=False)
    advantages_RT = paddle.to_tensor(np.array([[2.0, 2.0], [-1.0, -1.0], [0.0, 0.0]]))
    loss = aggregate(*positive_advantage_nll(logprobs_RT, advantages_RT, paddle.ones([3, 2])), "seq-mean-token-sum")
    loss.backward()
    assert float(loss) == 6.0
    np.testing.assert_array_equal(logprobs_RT.grad.numpy(), [[-2, -2], [0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"policy_loss": "gsp"}, r"policy_loss is 'gsp'; give one of .*did you mean 'gspo'"),
        ({"loss_agg_mode": "mean"}, "loss_agg_mode is 'mean'; give one of token-mean, seq-mean"),
        ({"kl_type": "k4"}, "kl_type is 'k4'"),
        ({"clip_range_ratio_low": 1.5}, "clip_range_ratio_low is 1.5; it must be above 0 and at most 1"),
        ({"clip_range_ratio_high": -0.1}, "clip_range_ratio_high"),
        ({"clip_range_score": 0.0}, "clip_range_score"),
        ({"dual_clip_ratio": 0.9}, "dual_clip_ratio is 0.9; it must be above 1"),
        ({"policy_loss": "gspo", "dual_clip_ratio": 3.0}, "dual_clip_ratio has no meaning for the gspo loss"),
    ],
)
def test_settings_out_of_range_are_one_clear_sentence(settings_, message):
    with pytest.raises(UserError, match=message) as caught:
        policy_loss_config(**settings_)
    assert "\n" not in str(caught.value)


ANOTHER_VALUE = {
    "policy_loss": "gspo",
    "loss_agg_mode": "seq-mean-token-sum",
    "pg_loss_coeff": 0.5,
    "clip_range_ratio": 0.05,
    "clip_range_ratio_low": 0.05,
    "clip_range_ratio_high": 0.05,
    "dual_clip_ratio": 1.05,
    "sapo_tau_pos": 2.0,
    "sapo_tau_neg": 2.0,
    "clip_range_score": 0.01,
    "kl_loss_coeff": 0.2,
    "kl_type": "k2",
    "entropy_coeff": 0.2,
    "sft_coeff": 0.2,
    "rollout_is": "sequence",
    "rollout_is_mode": "mask",
    "rollout_is_cap": 1.01,
    "rollout_is_floor": 0.99,
}


@pytest.mark.parametrize("name", PolicyLossConfig.model_fields)
def test_every_key_changes_the_loss(name):
    rng = np.random.default_rng(0)
    old_RT, advantages_RT = -rng.exponential(1, (4, 6)), rng.normal(size=(4, 6))
    new_RT, ref_RT, engine_RT = (old_RT + spread * rng.normal(size=(4, 6)) for spread in (0.3, 0.3, 0.9))
    columns = (new_RT, old_RT, advantages_RT, np.ones((4, 6)), ref_RT, -old_RT, engine_RT)
    tensors = [paddle.to_tensor(column) for column in columns]
    terms = {"kl_loss_coeff": 0.1, "entropy_coeff": 0.1, "sft_coeff": 0.1, "rollout_is": "token"}
    if name.startswith("sapo"):
        terms["policy_loss"] = "sapo"
    losses = [
        float(policy_objective(LossInputs(*tensors), policy_loss_config(**keys)).loss)
        for keys in (terms, terms | {name: ANOTHER_VALUE[name]})
    ]
    assert abs(losses[0] - losses[1]) > 1e-4
