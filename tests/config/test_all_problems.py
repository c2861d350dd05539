"""All mistakes of an argument file are told at once, each once, and help needs no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from config.conftest import RL
from support.rl_processes import SCRIPTS, environment

from grrm.config import Launch, RLConfig, SFTConfig, prepare
from grrm.config.batch_plan import batch_plan
from grrm.config.command_line import read_command_line
from grrm.errors import UserError, UserErrors


def mistakes(tmp_path: Path, changes: dict, overrides=(), stage=RLConfig) -> list[str]:
    path = tmp_path / "X.yaml"
    path.write_text(yaml.safe_dump({**RL, **changes}, sort_keys=False))
    with pytest.raises(UserErrors) as caught:
        prepare(stage, path, overrides, Launch("cpu", 1), check_machine=False)
    message = str(caught.value)
    assert message.startswith(f"{path}: {len(caught.value.sentences)} mistakes\n  ")
    assert message.count("X.yaml") == 1
    return list(caught.value.sentences)


def test_mistakes_of_every_kind_are_told_together(tmp_path):
    changes = {
        "lerning_rate": 1,
        "temperature": 0,
        "max_steps": "many",
        "ptx_coeff": 0.1,
        "min_dec_len": 40,
        "use_rm_server": True,
        "fp16": True,
        "global_batch_size": 6,
        "global_mini_batch_size": 4,
    }
    told = mistakes(tmp_path, changes, ["--rolout_n", "3"])
    expected = [
        "Unknown key 'lerning_rate'; did you mean 'learning_rate'?",
        "max_steps is 'many'; give a whole number",
        "Unknown key 'rolout_n'; did you mean 'rollout_n'?",
        "temperature is 0; it must be above 0",
        "ptx_coeff: 0.1 is not supported",
        "min_dec_len 40 is above max_dec_len 32",
        "use_rm_server needs reward_server",
        "global_mini_batch_size 4 must divide global_batch_size 6",
        "fp16 is not supported on a CPU",
    ]
    assert len(told) == len(expected)
    for sentence, start in zip(told, expected, strict=True):
        assert sentence.startswith(start)


def test_what_follows_from_a_key_that_is_wrong_in_itself_is_not_told_again(tmp_path):
    told = mistakes(tmp_path, {"rollout_n": 0, "sharding": "stage9", "output_dir": ["a"], "max_dec_len": "long"})
    assert [sentence.split()[0] for sentence in told] == ["output_dir", "max_dec_len", "rollout_n", "sharding"]


def test_nothing_is_worked_out_from_a_batch_size_that_is_wrong(tmp_path):
    told = mistakes(tmp_path, {"global_batch_size": 0, "per_device_train_batch_size": 64, "min_dec_len": 40})
    assert [sentence.split()[0] for sentence in told] == ["global_batch_size", "min_dec_len"]


def test_the_command_line_mends_what_is_wrong_in_the_file(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text(yaml.safe_dump({**RL, "temperature": 0, "stage": "SFT"}))
    mended = prepare(RLConfig, path, ["--temperature", "1", "--stage", "PPO"], check_machine=False)
    assert mended.config.temperature == 1
    with pytest.raises(UserError, match=r"X\.yaml: temperature is -1; it must be above 0"):
        prepare(RLConfig, path, ["--temperature", "-1", "--stage", "PPO"], check_machine=False)


def test_a_refused_key_is_not_asked_for_a_better_value(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text(yaml.safe_dump(RL))
    with pytest.raises(UserError, match=r"val_size: -1.* is not supported: held-out prompts come"):
        prepare(RLConfig, path, ["--val_size", "-1"], check_machine=False)


def test_a_single_mistake_stays_one_sentence(tmp_path):
    path = tmp_path / "X.yaml"
    path.write_text(yaml.safe_dump({**RL, "min_dec_len": 40}))
    with pytest.raises(UserError) as caught:
        prepare(RLConfig, path, check_machine=False)
    assert str(caught.value) == f"{path}: min_dec_len 40 is above max_dec_len 32; lower it."


def test_batch_sizes_that_do_not_fit_are_told_together():
    config = RLConfig(**RL, global_batch_size=6, global_gen_batch_size=12, global_mini_batch_size=4)
    with pytest.raises(UserErrors) as caught:
        batch_plan(config, 1)
    assert [sentence.split()[0] for sentence in caught.value.sentences] == [
        "global_gen_batch_size",
        "global_mini_batch_size",
    ]


def test_supervised_files_too(tmp_path):
    told = mistakes(tmp_path, {"do_eval": True, "weight_decay": "little"}, stage=SFTConfig)
    theirs = "'actor_model_name_or_path', 'rollout_n', 'max_prompt_len', 'max_dec_len'"
    assert f"Unknown keys {theirs}, known to run_rl.py; start that, or remove the keys." in told
    assert any(sentence.startswith("do_eval needs eval_datasets; give the file") for sentence in told)
    assert "weight_decay is 'little'; give a number." in told
    assert "give either model_name_or_path, to go on from a model, or init_from_config, to start anew." in told


def test_a_command_line_that_begins_with_a_setting_lacks_its_file():
    with pytest.raises(UserError, match=r"no argument file was given: run_sft\.py ARGUMENTS\.yaml"):
        read_command_line(SFTConfig, ["--max_steps", "3"])


@pytest.mark.parametrize(
    "words",
    [("run_rl.py", "--help"), ("run_sft.py", "-h"), ("run_reward.py", "--help"), ("run_rl.py", "X.yaml", "--help")],
)
def test_help_needs_neither_file_nor_paddle(words):
    command = [sys.executable, "-X", "importtime", str(SCRIPTS / words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {words[0]} ARGUMENTS.yaml")
    assert "  --learning_rate  number ≥ 0, ≤ 10; default 5e-05\n" in done.stdout
    assert "error: " not in done.stderr
    imports = [line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert imports
    assert not {name.split(".")[0] for name in imports} & {"paddle", "paddlenlp"}
