"""The argument classes against the installed PaddleNLP."""

from __future__ import annotations

import dataclasses
import typing

import pytest
import yaml
from paddlenlp.trainer import TrainingArguments

from grrm.config import RLArguments, SFTArguments, load_arguments, load_sft_arguments
from grrm.config.inherited import InheritedFields
from grrm.config.key_support import KEY_SUPPORT
from grrm.config.schema import RL_SCHEMA, SFT_SCHEMA
from grrm.errors import UserError
from grrm.training.model_setup import weights_dtype


@pytest.mark.parametrize(("kind", "cls", "schema"), [("RL", RLArguments, RL_SCHEMA), ("SFT", SFTArguments, SFT_SCHEMA)])
def test_every_field_is_in_the_table_of_who_honours_it(kind, cls, schema):
    fields = {field.name for field in dataclasses.fields(cls)}
    assert set(KEY_SUPPORT[kind]) == fields
    assert set(schema.types) == fields


def test_refused_keys_accept_their_own_default():
    for kind, schema in (("RL", RL_SCHEMA), ("SFT", SFT_SCHEMA)):
        defaults = schema.fresh_defaults()
        for key, support in KEY_SUPPORT[kind].items():
            if support.by.name == "REFUSED":
                assert defaults[key] in support.accepted, key
                assert support.note


def _plain(hint):
    """A type without enumerations and choices: PaddleNLP's IntervalStrategy and our Literal are both text."""
    if typing.get_origin(hint) is typing.Literal or (isinstance(hint, type) and hint.__name__ == "IntervalStrategy"):
        return str
    return hint


def _optional(hint):
    members = typing.get_args(hint)
    plain = {_plain(member) for member in members} - {type(None)} if type(None) in members else {_plain(hint)}
    return str(plain).replace("typing.List", "list")


def test_inherited_keys_are_those_of_the_installed_paddlenlp():
    ours, theirs = typing.get_type_hints(InheritedFields), typing.get_type_hints(TrainingArguments)
    defaults = {field.name: field.default for field in dataclasses.fields(InheritedFields)}
    for field in dataclasses.fields(TrainingArguments):
        assert _optional(ours[field.name]) == _optional(theirs[field.name]), field.name
        if field.name != "output_dir":
            assert defaults[field.name] == field.default, field.name
    assert len(defaults) == len(dataclasses.fields(TrainingArguments))


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


def test_load_arguments_hands_everything_to_paddlenlp(rl_file):
    args = load_arguments(rl_file, ["--learning_rate", "1e-4", "--lr_scheduler_type=constant"])
    assert isinstance(args, TrainingArguments)
    assert (args.learning_rate, args.lr_scheduler_type.value) == (1e-4, "constant")
    assert (args.device, args.report_to, args.world_size) == ("cpu", ["visualdl"], 1)
    assert args.gradient_accumulation_steps == 2
    assert args.batch_plan().rollouts == 6
    assert args.to_dict()["advantage_rule"] == "grpo"


def test_the_number_of_launched_processes_counts_before_anything_starts(rl_file, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    with pytest.raises(
        UserError, match="global_batch_size 8 is not a multiple of the 3 data-parallel ranks; use 6 or 9"
    ):
        load_arguments(rl_file)


def test_bf16_on_a_cpu_is_the_kernels_matter_and_not_paddlenlps_which_has_no_products_for_it(rl_file):
    args = load_arguments(rl_file, ["--bf16", "true", "--fp16_opt_level", "O2"])
    assert (args.precision, args.bf16) == ("bfloat16", False)
    assert weights_dtype(args) == "float32"
    assert load_arguments(rl_file).precision == "float32"


def test_what_only_paddlenlp_checks_becomes_one_sentence(rl_file):
    with pytest.raises(UserError, match="PaddleNLP refuses these settings: Found unknown unified_checkpoint config"):
        load_arguments(rl_file, ["--unified_checkpoint", "--unified_checkpoint_config", "nonsense"])


def test_load_sft_arguments(tmp_path):
    (tmp_path / "sft.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    (tmp_path / "model").mkdir()
    path = tmp_path / "sft.yaml"
    path.write_text(
        f"output_dir: {tmp_path}/out\nmodel_name_or_path: {tmp_path}/model\ntrain_datasets: {tmp_path}/sft.jsonl\n"
        "device: cpu\ngradient_accumulation_steps: 2\n"
    )
    args = load_sft_arguments(path)
    assert (args.max_length, args.gradient_accumulation_steps, args.device) == (2048, 2, "cpu")


def test_the_device_defaults_to_what_there_is(tmp_path):
    args = RLArguments(output_dir=str(tmp_path))
    assert args.device in ("cpu", "gpu")
