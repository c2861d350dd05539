"""A rule and a loss that are only registered are choices of their keys, accepted by every shipped file, and train."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import paddle
import pytest
import yaml

from grrm.algorithms.advantages import ADVANTAGE_RULES, AdvantageInputs
from grrm.algorithms.advantages.interface import advantage_rule
from grrm.algorithms.policy_losses import POLICY_LOSSES, LossInputs, TokenLoss
from grrm.algorithms.policy_losses.interface import policy_loss
from grrm.config import RLConfig, prepare
from grrm.config.derive_objective import policy_loss_config
from grrm.config.document import algorithm_tables, help_text, key_tables
from grrm.config.stages import stage_of
from grrm.errors import UserError
from grrm.rl.losses.objective import policy_objective

FOLDER = Path(__file__).parents[2] / "llm/config/qwen"
RL_FILES = sorted(path for path in FOLDER.glob("*.yaml") if "rl_algorithm" in yaml.safe_load(path.read_text()))
BOTH = ("--advantage_rule", "sign_of_deviation", "--policy_loss", "unclipped")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with patch.dict(ADVANTAGE_RULES), patch.dict(POLICY_LOSSES):

        @advantage_rule()
        def sign_of_deviation(inputs: AdvantageInputs) -> np.ndarray:
            means_R = [np.nanmean(inputs.scores_R[inputs.groups_R == group]) for group in inputs.groups_R]
            return np.sign(np.nan_to_num(inputs.scores_R - means_R))[:, None] * inputs.valid_RT

        @policy_loss()
        def unclipped(inputs: LossInputs) -> TokenLoss:
            ratio_RT = (inputs.logprobs_RT - inputs.old_logprobs_RT).exp()
            return TokenLoss(-inputs.advantages_RT * ratio_RT, ratio_RT, {})

        yield


def read(path: Path, *overrides: str) -> RLConfig:
    return prepare(RLConfig, path, overrides, check_machine=False).config


@pytest.mark.parametrize("path", RL_FILES, ids=[path.stem for path in RL_FILES])
def test_every_shipped_file_accepts_them(path: Path) -> None:
    config, shipped = read(path, *BOTH), read(path)
    assert (config.advantage_rule, config.policy_loss) == ("sign_of_deviation", "unclipped")
    assert config.failure_policy == {"single_candidate": "contrast", **shipped.failure_policy}
    assert config.norm_adv_by_std is False


def test_they_are_choices_wherever_choices_are_shown() -> None:
    for text in (help_text(stage_of(RLConfig)), key_tables("rl"), algorithm_tables()):
        assert "sign_of_deviation" in text
        assert "unclipped" in text
    with pytest.raises(UserError, match="did you mean 'unclipped'"):
        policy_loss_config(policy_loss="unclip")


def test_a_key_that_the_new_loss_does_not_read_is_reported(tmp_path: Path) -> None:
    (notice,) = read(FOLDER / "grpo_grrm_tiny_argument.yaml", *BOTH, "--clip_range_ratio", "0.3").notices
    assert notice.startswith("clip_range_ratio has no effect with policy_loss unclipped")


@pytest.mark.parametrize(
    ("traits", "overrides", "message"),
    [
        ({}, ["--gamma", "0.9"], "gamma 0.9 is not supported with advantage_rule scaled"),
        ({}, ["--rollout_n", "1"], "rollout_n 1 leaves advantage_rule scaled without other samples"),
        ({"divides_by": "group_std"}, [], "norm_adv_by_std contradicts advantage_rule scaled"),
    ],
)
def test_what_a_file_may_say_follows_from_the_traits(traits: dict, overrides: list[str], message: str) -> None:
    @advantage_rule(**traits)
    def scaled(inputs: AdvantageInputs) -> np.ndarray:
        return inputs.valid_RT * 1.0

    with pytest.raises(UserError, match=message):
        read(FOLDER / "grpo_grrm_tiny_argument.yaml", "--advantage_rule", "scaled", *overrides)


def test_a_rule_per_token_has_gamma_normalisations_one_sample_and_its_kl_in_the_reward() -> None:
    @advantage_rule(compares_with_group=False, per_token=True, kl_in_reward=True)
    def returns(inputs: AdvantageInputs) -> np.ndarray:
        return inputs.valid_RT * 1.0

    overrides = [
        "--advantage_rule",
        "returns",
        "--gamma",
        "0.9",
        "--normalize_reward",
        "--rollout_n",
        "1",
        "--per_device_train_batch_size",
        "1",
    ]
    config = read(FOLDER / "grpo_grrm_tiny_argument.yaml", *overrides)
    assert (config.gamma, config.normalize_reward, config.kl_coeff) == (0.9, True, 0.02)


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="already"):
        advantage_rule()(ADVANTAGE_RULES["sign_of_deviation"].function)
    with pytest.raises(ValueError, match="already"):
        policy_loss()(POLICY_LOSSES["unclipped"].function)


def test_they_train() -> None:
    mask_RT = np.array([[1, 1, 0], [1, 1, 1]])
    inputs = AdvantageInputs(np.array([1.0, 3.0]), np.array([0, 0]), mask_RT)
    advantages_RT = ADVANTAGE_RULES["sign_of_deviation"](inputs)
    logprobs_RT = paddle.full([2, 3], -1.0, dtype="float64")
    logprobs_RT.stop_gradient = False
    batch = LossInputs(logprobs_RT, paddle.full([2, 3], -1.0), *map(paddle.to_tensor, (advantages_RT, mask_RT)))
    policy_objective(batch, policy_loss_config(policy_loss="unclipped")).loss.backward()
    np.testing.assert_allclose(logprobs_RT.grad.numpy(), np.array([[1, 1, 0], [-1, -1, -1]]) / 5)
