"""RL argument files as PaddleNLP ships them are read and planned as they are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from support.argument_files import FILES, write_paddlenlp_file

from grrm.config import Launch, RLConfig, prepare
from grrm.config.load import switches_without_effect
from grrm.config.plan import Machine, show_plan

KL_NOTICE = "kl_coeff has no effect with advantage_rule grpo"
VALUE_NOTICE = "per_device_value_batch_size has no effect with advantage_rule"
RULE_NOTICE = "reward_server is not asked, because use_rule_reward scores the responses"
NOTICES = {"grpo": (KL_NOTICE, VALUE_NOTICE), "reinforce_plus_plus": (VALUE_NOTICE,), "ppo": (RULE_NOTICE,)}


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("name", FILES)
def test_files_are_read_unedited_for_any_multiple_of_their_tensor_ranks(name: str, copies: int, tmp_path: Path) -> None:
    path, n_tensor = write_paddlenlp_file(name, tmp_path), FILES[name]["tensor_parallel_degree"]
    prepared = prepare(RLConfig, path, launch=Launch("gpu", n_tensor * copies), check_machine=False)
    config, plan = prepared.config, prepared.plan
    assert (plan.data_ranks, plan.updates_per_rollout) == (copies, 4 if "32b" in name or "ppo" in name else 1)
    assert (config.tensor_parallel_degree, config.sequence_parallel, config.unified_checkpoint) == (
        n_tensor,
        True,
        True,
    )
    assert (config.weight_decay, config.adam_epsilon) == (0.01, 1e-8)
    assert config.amp_custom_black_list[-2:] == ["sin", "cos"]
    assert config.reward_model_name_or_path is None
    assert config.kl_coeff == (0.001 if "plus" in name else 0.0)
    said = sorted(NOTICES[config.rl_algorithm])
    assert all(notice.startswith(begin) for notice, begin in zip(sorted(config.notices), said, strict=True))


def test_the_keys_of_the_critic_take_effect(tmp_path: Path) -> None:
    config = prepare(RLConfig, write_paddlenlp_file("ppo_argument", tmp_path), check_machine=False).config
    assert (config.learning_rate, config.critic_learning_rate, config.critic_weight_decay) == (1e-6, 1e-5, 0.01)
    assert (config.clip_range_value, config.per_device_value_batch_size, config.rollout_n) == (0.5, 2, 1)
    assert (config.min_learning_rate, config.critic_min_learning_rate) == (None, None)  # constant, so its own floor
    assert (config.use_kl_in_reward, config.kl_loss_coeff, config.normalize_advantage) == (True, 0.001, False)


@pytest.mark.parametrize("name", FILES)
def test_files_are_planned_unedited(name: str, tmp_path: Path) -> None:
    printed = io.StringIO()
    n_processes = FILES[name]["tensor_parallel_degree"]
    show_plan(str(write_paddlenlp_file(name, tmp_path)), Machine(n_processes), out=printed)
    assert f"tensor parallel {n_processes}" in printed.getvalue()


def test_only_what_is_not_done_is_said_to_have_no_effect(tmp_path: Path) -> None:
    config = prepare(RLConfig, write_paddlenlp_file("grpo_argument", tmp_path), check_machine=False).config
    said = switches_without_effect(config)
    assert "offload_level (nothing is offloaded)" in said
    for name in ("use_fused_head_and_loss_fn", "use_remove_padding", "sequence_parallel"):
        assert name not in said


def prepared_with(tmp_path: Path, check_machine: bool = False, launch: Launch | None = None, **changes: object):
    data, kept = tmp_path / "rows.jsonl", FILES["grpo_argument"]
    data.write_text("{}\n")
    values = {**kept, "train_datasets": str(data), "eval_datasets": str(data), "report_to": "none", **changes}
    path = tmp_path / "arguments.yaml"
    path.write_text(yaml.safe_dump(values))
    return prepare(RLConfig, path, launch=launch, check_machine=check_machine).config


@pytest.mark.parametrize(
    ("changes", "key", "value", "notice"),
    [
        ({"tensor_parallel_degree": 1}, "sequence_parallel", False, None),
        ({"tensor_parallel_degree": -1}, "unified_checkpoint", False, None),
        (
            {"normalize_reward": True},
            "normalize_reward",
            False,
            "normalize_reward has no effect with advantage_rule grpo",
        ),
        ({"chat_template": "", "wandb_http_proxy": ""}, "wandb_http_proxy", None, None),
        ({"quant_type": ""}, "rollout_quant_type", "", "quant_type is the older name of rollout_quant_type."),
        ({"global_mini_batch_size": -1}, "global_mini_batch_size", -1, None),
    ],
    ids=["sequence", "checkpoint", "normalize", "empty", "old name", "mini-batch"],
)
def test_values_are_taken_as_paddlenlp_takes_them(
    tmp_path: Path, changes: dict[str, object], key: str, value: object, notice: str | None
) -> None:
    config = prepared_with(tmp_path, **changes)
    assert getattr(config, key) == value
    assert [one for one in config.notices if not one.startswith(NOTICES["grpo"])] == (
        [] if notice is None else [one for one in config.notices if one.startswith(notice)]
    )


def test_a_tracker_that_is_not_here_is_left_out_with_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "wandb" else name)
    config = prepared_with(tmp_path, check_machine=True, report_to="wandb")
    assert config.report_to == ["none"]
    assert any(notice.startswith("report_to names wandb, whose package is not installed") for notice in config.notices)
    assert prepared_with(tmp_path, check_machine=True, report_to=["visualdl", "wandb"]).report_to == ["visualdl"]


def test_what_a_cpu_has_no_use_for_is_left_out_with_a_notice(tmp_path: Path) -> None:
    config = prepared_with(tmp_path, launch=Launch("cpu", 2), offload_optim=True)
    assert config.offload_optim is False
    assert any(notice.startswith("offload_optim has nowhere to offload to on a CPU") for notice in config.notices)
