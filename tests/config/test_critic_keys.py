"""Keys of PPO's critic: what each is when it is not given."""

from __future__ import annotations

from functools import partial

import pytest

from grrm.errors import UserError

PPO = {"rl_algorithm": "ppo", "actor_model_name_or_path": "a/policy", "train_datasets": "rows.jsonl", "output_dir": "o"}


@pytest.fixture
def config_of(prepared):
    return partial(prepared, base=PPO)


@pytest.mark.parametrize(
    ("key", "value", "derived"),
    [
        ("learning_rate", 3e-6, "critic_learning_rate"),
        ("weight_decay", 0.1, "critic_weight_decay"),
        ("lr_scheduler_type", "cosine", "critic_lr_scheduler_type"),
        ("warmup_ratio", 0.2, "critic_warmup_ratio"),
        ("recompute", True, "critic_recompute"),
        ("actor_model_name_or_path", "another/policy", "critic_model_name_or_path"),
        ("per_device_train_batch_size", 2, "per_device_value_batch_size"),
    ],
)
def test_the_critic_is_set_up_as_the_policy_unless_its_own_key_is_given(config_of, key, value, derived):
    assert getattr(config_of(**{key: value}), derived) == value
    other = {"critic_lr_scheduler_type": "constant", "critic_model_name_or_path": "a/critic"}.get(derived, 1)
    assert getattr(config_of(**{key: value, derived: other}), derived) == other


def test_advantages_against_a_critic_are_normalised_and_pay_for_kl_unless_the_file_says_otherwise(config_of):
    config = config_of()
    assert (config.advantage_rule, config.policy_loss, config.gae_lambda) == ("gae", "token_clip", 0.95)
    assert (config.normalize_advantage, config.use_kl_in_reward, config.kl_coeff) == (True, True, 0.02)
    other = config_of(normalize_advantage=False, use_kl_in_reward=False, gamma=0.9, rollout_n=1)
    assert (other.normalize_advantage, other.kl_coeff, other.kl_loss_coeff) == (False, 0.0, 0.001)


def test_the_floor_of_a_cosine_schedule_is_kept_and_that_of_a_constant_one_is_itself(config_of):
    rates = {"learning_rate": 1e-4, "critic_min_learning_rate": 1e-5}
    assert config_of(**rates, lr_scheduler_type="cosine").critic_min_learning_rate == 1e-5
    constant = {"critic_lr_scheduler_type": "constant", "critic_learning_rate": 1e-5}
    assert config_of(**rates, **constant).critic_min_learning_rate is None


def test_fp16_is_refused(config_of):
    with pytest.raises(UserError, match=r"fp16 is not supported with advantage_rule gae: .*; use bf16: true"):
        config_of(fp16=True)


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({"critic_learning_rate": 1e-6}, "critic_learning_rate has no effect with advantage_rule grpo"),
        (
            {"gae_lambda": 0.9, "clip_range_value": 1.0},
            "gae_lambda, clip_range_value have no effect with",
        ),
        ({"critic_recompute": True}, "critic_recompute has no effect with advantage_rule grpo, which has no critic"),
        ({"critic_recompute": False, "clip_range_value": 5.0, "critic_warmup": 0}, None),
    ],
)
def test_without_a_critic_its_keys_are_said_to_have_no_effect(config_of, changes, begin):
    notices = config_of(rl_algorithm="grpo", rollout_n=4, **changes).notices
    assert [notice.startswith(begin or "") for notice in notices] == ([] if begin is None else [True])
