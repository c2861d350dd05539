"""The declared keys and the arguments made of them against the installed PaddleNLP."""

from __future__ import annotations

import dataclasses
import typing
from types import SimpleNamespace

import pytest
import yaml
from paddlenlp.trainer import Trainer, TrainingArguments
from paddlenlp.trainer.trainer_utils import OptimizerNames

from grrm.config import RewardModelConfig, RLConfig, SFTConfig, load_config
from grrm.config.key import By, keys_of
from grrm.config.training_arguments import training_arguments
from grrm.errors import UserError
from grrm.training.model_setup import weights_dtype

# Keys whose default here is not PaddleNLP's; report_to has no None here.
OTHER_DEFAULTS = {"output_dir", "do_train", "device", "report_to"}
OTHER_TYPES = {"report_to"}


@pytest.mark.parametrize("config", [RLConfig, SFTConfig, RewardModelConfig])
def test_refused_keys_accept_their_own_default(config):
    for name, key in keys_of(config).items():
        if key.support.by is By.REFUSED:
            assert key.is_off(key.default), name
        assert bool(key.support.note) == (key.support.by in (By.REFUSED, By.SWITCH)), name


def _plain(hint):
    """A type without enumerations and choices: PaddleNLP's IntervalStrategy and our Literal are both text."""
    if typing.get_origin(hint) is typing.Literal or (isinstance(hint, type) and hint.__name__ == "IntervalStrategy"):
        return str
    return hint


def _optional(hint):
    members = typing.get_args(hint)
    plain = {_plain(member) for member in members} - {type(None)} if type(None) in members else {_plain(hint)}
    return str(plain).replace("typing.List", "list")


@pytest.mark.parametrize("config", [RLConfig, SFTConfig, RewardModelConfig])
def test_keys_of_paddlenlp_are_those_of_the_installed_version(config):
    theirs = typing.get_type_hints(TrainingArguments)
    keys = keys_of(config)
    for field in dataclasses.fields(TrainingArguments):
        if field.name not in OTHER_TYPES:
            assert _optional(keys[field.name].hint) == _optional(theirs[field.name]), field.name
        if field.name not in OTHER_DEFAULTS:
            assert keys[field.name].default == field.default, field.name
    honoured = {name for name, key in keys.items() if key.support.by is By.TRAINER}
    assert honoured <= {field.name for field in dataclasses.fields(TrainingArguments)}


@pytest.mark.parametrize("name", typing.get_args(keys_of(RLConfig)["optim"].hint))
def test_every_optimizer_is_one_that_paddlenlp_builds(name):
    args = SimpleNamespace(optim=OptimizerNames(name), adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8)
    optimizer, _ = Trainer.get_optimizer_cls_and_kwargs(args)
    assert "Adam" in optimizer.__name__


@pytest.fixture
def rl_file(tmp_path):
    (tmp_path / "rl.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    (tmp_path / "model").mkdir()
    path = tmp_path / "rl.yaml"
    content = {
        "output_dir": str(tmp_path / "out"),
        "actor_model_name_or_path": str(tmp_path / "model"),
        "train_datasets": str(tmp_path / "rl.jsonl"),
        "rollout_n": 2,
        "max_steps": 6,
        "save_steps": 2,
        "device": "cpu",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def arguments_of(path, overrides=()):
    return training_arguments(load_config(RLConfig, path, overrides))


def test_everything_is_handed_to_paddlenlp(rl_file):
    args = arguments_of(rl_file, ["--learning_rate", "1e-4", "--lr_scheduler_type=constant"])
    assert isinstance(args, TrainingArguments)
    assert (args.learning_rate, args.lr_scheduler_type.value) == (1e-4, "constant")
    assert (args.device, args.report_to, args.world_size) == ("cpu", ["visualdl"], 1)
    assert args.gradient_accumulation_steps == 2
    assert args.to_dict()["advantage_rule"] == "grpo"


def test_the_number_of_launched_processes_counts_before_anything_starts(rl_file, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    with pytest.raises(
        UserError, match="global_batch_size 8 is not a multiple of the 3 data-parallel ranks; use 6 or 9"
    ):
        arguments_of(rl_file)


def test_bf16_on_a_cpu_is_the_kernels_matter_and_not_paddlenlps_which_has_no_products_for_it(rl_file):
    args = arguments_of(rl_file, ["--bf16", "true", "--fp16_opt_level", "O2"])
    assert (args.precision, args.bf16) == ("bfloat16", False)
    assert weights_dtype(args) == "float32"
    assert arguments_of(rl_file).precision == "float32"


@pytest.mark.parametrize(
    ("precision", "level", "expected"),
    [("bf16", "O2", "bfloat16"), ("fp16", "O2", "float16"), ("bf16", "O1", "float32"), ("fp16", "O1", "float32")],
)
def test_weights_are_loaded_in_the_type_that_a_gpu_trains_them_in(precision, level, expected):
    args = SimpleNamespace(**{"bf16": False, "fp16": False, "fp16_opt_level": level, precision: True})
    assert weights_dtype(args) == expected


def test_what_only_paddlenlp_checks_becomes_one_sentence(rl_file):
    with pytest.raises(UserError, match="PaddleNLP refuses these settings: Found unknown unified_checkpoint config"):
        arguments_of(rl_file, ["--unified_checkpoint", "--unified_checkpoint_config", "nonsense"])


def test_arguments_of_a_supervised_run(tmp_path):
    (tmp_path / "sft.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    (tmp_path / "model").mkdir()
    path = tmp_path / "sft.yaml"
    path.write_text(
        f"output_dir: {tmp_path}/out\nmodel_name_or_path: {tmp_path}/model\ntrain_datasets: {tmp_path}/sft.jsonl\n"
        "device: cpu\ngradient_accumulation_steps: 2\n"
    )
    args = training_arguments(load_config(SFTConfig, path))
    assert (args.to_dict()["max_length"], args.gradient_accumulation_steps, args.device) == (2048, 2, "cpu")


def test_the_device_defaults_to_what_there_is(tmp_path):
    args = training_arguments(SFTConfig(output_dir=str(tmp_path)))
    assert args.device in ("cpu", "gpu")
