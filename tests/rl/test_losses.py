"""Policy losses beside the oracle's formulas and their gradients; any split adds up to the whole."""

from __future__ import annotations

from typing import get_args

import numpy as np
import paddle
import pytest
from autograd import elementwise_grad
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.objective import POLICY_LOSSES as FORMULAS
from oracle.objective import Inputs, objective

from grrm.algorithms.policy_losses import POLICY_LOSSES, LossInputs
from grrm.algorithms.policy_losses.interface import Aggregation
from grrm.config.derive_objective import policy_loss_config
from grrm.errors import UserError
from grrm.rl.losses.aggregation import count_denominators, merge_metrics
from grrm.rl.losses.objective import policy_objective

FIELDS = (
    "logprobs_RT",
    "old_logprobs_RT",
    "advantages_RT",
    "mask_RT",
    "ref_logprobs_RT",
    "entropy_RT",
    "engine_logprobs_RT",
)
FULL = {"sft_coeff": 0.1, "kl_loss_coeff": 0.05, "entropy_coeff": 0.02, "pg_loss_coeff": 0.9}
OPTIONS = {
    "token_clip": {"clip_range_ratio_low": 0.2, "clip_range_ratio_high": 0.28, "dual_clip_ratio": 1.5},
    "gspo": {"clip_range_ratio_low": 0.1, "clip_range_ratio_high": 0.15},
    "cispo": {"clip_range_ratio_high": 0.15},
    "gmpo": {"clip_range_ratio_low": 0.1, "clip_range_ratio_high": 0.15},
    "sapo": {"sapo_tau_pos": 1.5, "sapo_tau_neg": 2.5},
}
CONFIGS = {name: policy_loss_config(policy_loss=name, **OPTIONS.get(name, {}), **FULL) for name in POLICY_LOSSES}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
shipped = pytest.mark.parametrize("config", [CONFIGS[name] for name in OPTIONS], ids=list(OPTIONS))
modes = pytest.mark.parametrize("mode", get_args(Aggregation))
BOUNDS = {"rollout_is_cap": 1.2, "rollout_is_floor": 0.7}
corrections = st.sampled_from(
    [
        {},
        {"rollout_is": "token", **BOUNDS},
        {"rollout_is": "token", "rollout_is_mode": "mask", **BOUNDS},
        {"rollout_is": "sequence", **BOUNDS},
        {"rollout_is": "sequence", "rollout_is_mode": "mask", **BOUNDS},
    ]
)


def batch(seed, lengths=(5, 3, 0, 1, 4), width=5, spread=0.3):
    """Arrays of LossInputs with one advantage per row, as group rules give, 0 where it has 3 tokens."""
    rng = np.random.default_rng(seed)
    shape, lengths_R1 = (len(lengths), width), np.array(lengths)[:, None]
    old_RT = -rng.exponential(1, shape)
    return {
        "logprobs_RT": old_RT + spread * rng.normal(size=shape),
        "old_logprobs_RT": old_RT,
        "advantages_RT": np.repeat(
            rng.normal(size=(len(lengths), 1)) * (rng.random((len(lengths), 1)) < 0.8), width, 1
        ),
        "mask_RT": (np.arange(width) < lengths_R1).astype(np.float64),
        "ref_logprobs_RT": old_RT + spread * rng.normal(size=shape),
        "entropy_RT": rng.random(shape),
        "engine_logprobs_RT": old_RT + spread * rng.normal(size=shape),
    }


def run(arrays, config, denominators=None, dtype="float64"):
    """(loss, gradients of logprobs and entropy, metrics) as numpy."""
    tensors = {name: paddle.to_tensor(arrays[name].astype(dtype)) for name in FIELDS}
    for name in ("logprobs_RT", "entropy_RT"):
        tensors[name].stop_gradient = False
    output = policy_objective(LossInputs(**tensors), config, denominators)
    output.loss.backward()
    gradients = [gradient_of(tensors[name]) for name in ("logprobs_RT", "entropy_RT")]
    return float(output.loss), gradients, {name: float(value) for name, value in output.metrics.items()}


def gradient_of(tensor):
    """The gradient, zero for a tensor that took no part in the loss."""
    return np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()


def by_oracle(arrays, config):
    """The objective's formula with its metrics, and its gradients by autograd."""
    logprobs, old, advantages, mask, reference, entropy, engine = (arrays[name] for name in FIELDS)
    inputs = Inputs(old, engine, reference, advantages, mask > 0, mask.shape[1], config.model_dump())
    mode = POLICY_LOSSES[config.policy_loss].aggregation or config.loss_agg_mode
    terms = lambda *parts: objective(*parts, inputs, FORMULAS[config.policy_loss], mode)  # noqa: E731
    loss = lambda *parts: terms(*parts).loss  # noqa: E731
    return terms(logprobs, entropy), [elementwise_grad(loss, argument)(logprobs, entropy) for argument in (0, 1)]


@shipped
@modes
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any),
    correction=corrections,
    kl_type=st.sampled_from(["k1", "abs", "k2", "k3", "k1+", "abs+", "k3+"]),
)
def test_objective_its_metrics_and_gradients_are_those_of_the_formula(config, mode, seed, lengths, correction, kl_type):
    arrays = batch(seed, lengths)
    config = config.model_copy(update={"loss_agg_mode": mode, "kl_type": kl_type, **correction})
    terms, expected = by_oracle(arrays, config)
    loss, gradients, metrics = run(arrays, config)
    assert loss == pytest.approx(terms.loss, rel=1e-9, abs=1e-12)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert metrics == pytest.approx({name: terms.metrics.get(name, 0.0) for name in metrics}, rel=1e-9, abs=1e-12)


@configs
def test_the_first_update_follows_the_policy_gradient(config):
    """Where the policy is the one that sampled, every loss has the gradient of -A log p."""
    arrays = batch(10)
    arrays["logprobs_RT"] = arrays["old_logprobs_RT"]
    alone = config.model_copy(update={"kl_loss_coeff": 0.0, "entropy_coeff": 0.0, "sft_coeff": 0.0})
    mode, mask_RT = POLICY_LOSSES[config.policy_loss].aggregation or config.loss_agg_mode, arrays["mask_RT"]
    lengths_R1 = np.maximum(mask_RT.sum(axis=1, keepdims=True), 1)
    share_RT = mask_RT / lengths_R1 / 4 if mode == "seq-mean-token-mean" else mask_RT / mask_RT.sum()
    np.testing.assert_allclose(
        run(arrays, alone)[1][0], -alone.pg_loss_coeff * arrays["advantages_RT"] * share_RT, rtol=1e-12, atol=1e-15
    )


@configs
@modes
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_any_split_into_micro_batches_adds_up_to_the_whole(config, mode, seed, data):
    config = config.model_copy(update={"loss_agg_mode": mode, **data.draw(corrections)})
    arrays = batch(seed, lengths=data.draw(st.lists(st.integers(0, 5), min_size=6, max_size=6)))
    part_R = np.array(data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6)))
    rows = [part_R == part for part in range(3) if (part_R == part).any()]
    denominators = count_denominators(arrays["mask_RT"], arrays["advantages_RT"])
    whole_loss, whole_gradients, whole_metrics = run(arrays, config)

    losses, metrics = [], []
    for r in rows:
        # Each micro-batch is padded to its own longest row only; the denominators remember the common width.
        width = max(int(arrays["mask_RT"][r].sum(axis=1).max()), 1)
        loss, gradients, part = run({n: a[r][:, :width] for n, a in arrays.items()}, config, denominators)
        losses.append(loss)
        metrics.append(part)
        for gradient_RT, whole_RT in zip(gradients, whole_gradients, strict=True):
            np.testing.assert_allclose(gradient_RT, whole_RT[r][:, :width], rtol=1e-12, atol=1e-15)
    assert sum(losses) == pytest.approx(whole_loss, rel=1e-12, abs=1e-14)
    assert merge_metrics(metrics) == pytest.approx(whole_metrics, rel=1e-12, abs=1e-14)


@configs
def test_garbage_outside_the_mask_reaches_neither_loss_nor_gradient(config):
    clean = batch(1)
    dirty = {name: np.where(clean["mask_RT"] > 0, array, 0.0) for name, array in clean.items()}
    for name, garbage in zip(FIELDS, (-np.inf, -np.inf, np.nan, 0.0, np.nan, np.inf, np.nan), strict=True):
        dirty[name][clean["mask_RT"] == 0] = garbage
    (clean_loss, clean_gradients, clean_metrics), (loss, gradients, metrics) = run(clean, config), run(dirty, config)
    assert loss == clean_loss
    assert metrics == clean_metrics
    for gradient_RT, clean_RT in zip(gradients, clean_gradients, strict=True):
        np.testing.assert_array_equal(gradient_RT, clean_RT)
        assert not gradient_RT[clean["mask_RT"] == 0].any()
        assert gradient_RT[clean["mask_RT"] > 0].any()


@configs
@modes
def test_twice_the_batch_has_the_same_loss(config, mode):
    config = config.model_copy(update={"loss_agg_mode": mode})
    once, twice = batch(3), {name: np.concatenate([array, array]) for name, array in batch(3).items()}
    assert run(twice, config)[0] == pytest.approx(run(once, config)[0], rel=1e-12)


@configs
@modes
def test_fully_masked_batch_gives_zero_and_finite_gradient(config, mode):
    loss, gradients, metrics = run(batch(2, lengths=(0, 0)), config.model_copy(update={"loss_agg_mode": mode}))
    assert loss == 0
    assert not np.any(gradients)
    assert not any(metrics.values())


@pytest.mark.parametrize("policy_loss", list(POLICY_LOSSES))
def test_exploding_ratio_stays_finite_in_float32(policy_loss):
    arrays = batch(0, lengths=(3, 3), width=3)
    arrays["logprobs_RT"] = arrays["old_logprobs_RT"] + 500
    arrays["ref_logprobs_RT"] = arrays["logprobs_RT"] + 500
    arrays["advantages_RT"][:] = [[-1.0], [1.0]]
    loss, gradients, metrics = run(
        arrays, policy_loss_config(policy_loss=policy_loss, kl_loss_coeff=1.0), dtype="float32"
    )
    assert np.isfinite([loss, *metrics.values()]).all()
    assert np.isfinite(gradients[0]).all()


@modes
def test_kl_and_entropy_are_logged_per_token_however_the_loss_is_aggregated(mode):
    """Dr. GRPO's aggregation made them sums over what a response may be long, and the verdict says: per token."""
    arrays = batch(11)
    arrays["entropy_RT"] = np.full_like(arrays["entropy_RT"], 2.5)
    arrays["ref_logprobs_RT"] = arrays["logprobs_RT"] - 0.5
    denominators = count_denominators(arrays["mask_RT"], arrays["advantages_RT"], width=512)
    config = policy_loss_config(loss_agg_mode=mode, kl_type="k1", kl_loss_coeff=0.1)
    metrics = run(arrays, config, denominators)[2]
    assert (metrics["entropy"], metrics["kl"]) == (pytest.approx(2.5), pytest.approx(0.5))


@configs
def test_terms_without_weight_add_nothing_to_the_gradient(config):
    arrays = batch(7)
    off = config.model_copy(update={"kl_loss_coeff": 0.0, "entropy_coeff": 0.0, "sft_coeff": 0.0, "pg_loss_coeff": 0.0})
    loss, gradients, metrics = run(arrays, off)
    assert loss == 0
    assert not np.any(gradients)
    assert metrics["kl"] > 0
    assert "sft_loss" not in metrics


@configs
def test_inputs_are_not_modified_and_constants_get_no_gradient(config):
    arrays = batch(8)
    tensors = {name: paddle.to_tensor(arrays[name], stop_gradient=False) for name in FIELDS}
    policy_objective(LossInputs(**tensors), config).loss.backward()
    for name in FIELDS:
        np.testing.assert_array_equal(tensors[name].numpy(), arrays[name])
    for name in ("old_logprobs_RT", "advantages_RT", "ref_logprobs_RT"):
        assert tensors[name].grad is None


@configs
def test_float32_stays_float32_and_agrees_with_float64(config):
    arrays = batch(9)
    loss64, gradients64, _ = run(arrays, config)
    loss32, gradients32, _ = run(arrays, config, dtype="float32")
    assert gradients32[0].dtype == np.float32
    assert loss32 == pytest.approx(loss64, rel=1e-5)
    np.testing.assert_allclose(gradients32[0], gradients64[0], rtol=1e-4, atol=1e-7)


@modes
def test_bool_mask_and_an_empty_micro_batch(mode):
    arrays = batch(0)
    as_bool = LossInputs(
        *(paddle.to_tensor(arrays[n].astype(bool) if n == "mask_RT" else arrays[n]) for n in FIELDS[:4])
    )
    config = policy_loss_config(loss_agg_mode=mode)
    assert float(policy_objective(as_bool, config).loss) == run(arrays, config)[0]
    loss, gradients, _ = run({name: array[:0] for name, array in arrays.items()}, config)
    assert loss == 0
    assert gradients[0].shape == (0, 5)


def test_a_weighted_term_without_its_input_is_refused():
    inputs = LossInputs(*(paddle.to_tensor(batch(0)[name]) for name in FIELDS[:4]))
    for setting, missing in (("kl_loss_coeff", "ref_logprobs_RT"), ("entropy_coeff", "entropy_RT")):
        with pytest.raises(ValueError, match=f"{missing} is missing"):
            policy_objective(inputs, policy_loss_config(**{setting: 0.1}))


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
