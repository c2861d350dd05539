"""A run of the stage: it learns, resumes bit by bit, gives on two ranks what it gives on one, and tells mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.command_line import ends_with_a_sentence
from support.rl_processes import CONFIGS, SCRIPTS, metrics_of, run, train_here, two_ranks
from support.rows import scored_rows

from grrm.config import RewardModelConfig, load_config
from grrm.errors import UserError
from grrm.models.policy import load_policy
from grrm.models.reward_models import cast_weights, load_reward_model, score_groups, with_new_head
from grrm.models.tokenizer import encoder, load_tokenizer
from grrm.models.trained_with import read_trained_with
from grrm.reward_model import run as reward_run
from grrm.training import supervised_run
from grrm.training.gold_groups import GroupEncoder, read_gold_groups
from grrm.training.model_setup import load_part

RANKER, PAIRWISE = CONFIGS / "ranker_tiny_argument.yaml", CONFIGS / "rm_tiny_argument.yaml"


def train(yaml: Path, overrides: list[str]) -> RewardModelConfig:
    config = load_config(RewardModelConfig, yaml, overrides)
    train_here(reward_run.train, config)
    return config


def weights(folder: Path) -> dict[str, np.ndarray]:
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == 2
    return {f"{path.name}/{name}": value for path in files for name, value in load_file(path).items()}


def largest_difference(one: Path, other: Path) -> float:
    """Of the weights of two models."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return max(np.abs(first[name] - second[name]).max() for name in first)


@pytest.mark.slow
@pytest.mark.parametrize("yaml", [RANKER, PAIRWISE], ids=["ranker", "pairwise"])
def test_learns_a_property_of_the_text(write_rows, settings, tmp_path, yaml):
    data = write_rows(scored_rows(240))
    evaluated = {"evaluation_strategy": "steps", "eval_steps": "50", "val_size": "40", "lr_end": "1e-4"}
    overrides = settings(data, max_steps="100", save_steps="100", learning_rate="0.003", **evaluated)
    train(yaml, [*overrides, "--backbone_learning_rate", "0.001"])
    first, last = (line for line in metrics_of(tmp_path / "out") if "eval_correlation" in line)
    assert last["eval_correlation_low"] > 0.5
    assert last["eval_correlation_low"] < last["eval_correlation"] < last["eval_correlation_high"]
    assert last["eval_pair_accuracy"] > 0.7
    assert last["eval_loss"] < first["eval_loss"]
    assert sum(last["eval_margins"]["counts"]) == 40 * 6
    pairs = last["eval_language_pairs"]
    assert set(pairs) == {"en-de", "en-es"}
    assert sum(pair["groups"] for pair in pairs.values()) == 40


@pytest.mark.parametrize(
    ("changed", "before", "now"),
    [
        ({"compare": "group", "blocks": "1"}, "compare none, blocks 2", "compare group, blocks 1"),
        ({"width": "16"}, r"width \d+", "width 16"),
    ],
)
def test_a_checkpoint_of_another_head_is_one_sentence(write_rows, settings, changed, before, now):
    data = write_rows(scored_rows(8))
    train(RANKER, settings(data, max_steps="1", save_steps="1"))
    with pytest.raises(UserError, match=f"checkpoint-1' is of a model with {before}, not {now}: set it back, set"):
        train(RANKER, settings(data, max_steps="2", save_steps="1", **changed))


@pytest.mark.parametrize(
    ("yaml", "head"),
    [(RANKER, {}), (RANKER, {"compare": "group", "blocks": "1", "width": "16"}), (PAIRWISE, {})],
    ids=["ranker", "comparing", "pairwise"],
)
def test_trained_model_scores_as_at_its_last_evaluation(world, write_rows, settings, tmp_path, yaml, head):
    data, held = write_rows(scored_rows(16)), write_rows(scored_rows(5, seed=9), "held.jsonl")
    evaluated = {"evaluation_strategy": "steps", "eval_steps": "2", "eval_datasets": str(held)}
    evaluated["per_device_eval_batch_size"] = "2"
    config = train(yaml, settings(data, max_steps="2", save_steps="2", **evaluated, **head))
    model = load_reward_model(tmp_path / "out")
    assert all(str(model.settings()[name]) == value for name, value in head.items())
    assert model.trained_with.language_pairs == ("en-de", "en-es")
    assert model.trained_with.prompt_type == config.prompt_type
    tokenizer = load_tokenizer(tmp_path / "out")
    template = json.loads((world.policy / "tokenizer_config.json").read_text())["chat_template"]
    assert (tmp_path / "out/chat_template.jinja").read_text(encoding="utf-8") == template
    end = [tokenizer.eos_token_id] if config.reward_model == "pairwise" else []
    groups = read_gold_groups(held, GroupEncoder(config, tokenizer, world.policy, end), config)
    scores = score_groups(model, [group.candidates for group in groups], max_tokens=1000)
    margins = [
        (one - other) * np.sign(gold - gold_other)
        for group, found in zip(groups, scores, strict=True)
        for i, (one, gold) in enumerate(zip(found, group.gold, strict=True))
        for other, gold_other in zip(found[:i], group.gold[:i], strict=True)
    ]
    (told,) = (line for line in metrics_of(tmp_path / "out") if "eval_margin" in line)
    assert told["eval_margin"] == pytest.approx(np.mean(margins), abs=1e-5)
    assert told["eval_pair_accuracy"] == pytest.approx(np.mean(np.array(margins) > 0))


def test_a_reward_model_is_trained_further_and_is_no_policy(write_rows, settings, tmp_path):
    data = write_rows(scored_rows(16))
    still = dict.fromkeys(("learning_rate", "backbone_learning_rate"), "0")
    still |= {"lr_scheduler_type": "constant", "max_steps": "1"}
    train(RANKER, settings(data, max_steps="2"))
    chinese = [{**row, "trg_lang": "Chinese"} for row in scored_rows(16)]
    further = {"model_name_or_path": str(tmp_path / "out"), **still}
    train(RANKER, settings(write_rows(chinese, "more.jsonl"), output="further", **further))
    assert largest_difference(tmp_path / "out", tmp_path / "further") == 0
    before, after = (read_trained_with(tmp_path / folder) for folder in ("out", "further"))
    assert set(after.language_pairs) == {*before.language_pairs, "en-zh"}
    assert [file.file for file in after.data] == ["groups.jsonl", "more.jsonl"]
    args = SimpleNamespace(tensor_parallel_degree=1, layer_settings={})
    with pytest.raises(UserError, match="holds a reward model, which writes no text: give the folder of a policy"):
        load_part(str(tmp_path / "out"), args)


def test_backbone_has_its_own_learning_rate(world, write_rows, settings, tmp_path):
    data = write_rows(scored_rows(8))
    one_step = {"max_steps": "1", "save_steps": "1", "learning_rate": "0.01", "weight_decay": "0"}
    moved = {}
    for rate in ("0", "0.0001", "0.01"):
        train(RANKER, settings(data, rate, **one_step, backbone_learning_rate=rate))
        before, after = load_file(world.policy / "model.safetensors"), load_file(tmp_path / rate / "model.safetensors")
        moved[rate] = max(np.abs(before[name] - after[name]).max() for name in after)
    assert moved["0"] == 0
    assert moved["0.0001"] == pytest.approx(0.0001, rel=0.05)  # AdamW's first step is as long as the learning rate
    assert moved["0.01"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("rate", "is_frozen"), [("0", True), ("0.1", False), ("null", False)])
def test_a_backbone_with_a_learning_rate_of_0_has_no_gradient(write_rows, settings, monkeypatch, rate, is_frozen):
    models: list[Any] = []
    monkeypatch.setattr(supervised_run.SupervisedRun, "train", lambda self, trainer, _: models.append(trainer.model))
    train(RANKER, settings(write_rows(scored_rows(8)), backbone_learning_rate=rate))
    (model,) = models
    assert {weight.stop_gradient for weight in model.backbone.parameters()} == {is_frozen}


@pytest.mark.parametrize("is_apart", [True, False])
def test_the_checkpoints_template_is_that_of_the_tokenizers_folder(world, write_rows, settings, tmp_path, is_apart):
    folder = shutil.copytree(world.policy, tmp_path / "tokenizer")
    (folder / "chat_template.jinja").write_text("turn: {{ messages[0]['content'] }}")
    places = {"tokenizer_name_or_path": str(folder)} if is_apart else {"model_name_or_path": str(folder)}
    pairs = write_rows([{"prompt": "One", "chosen": "Eins", "rejected": "Zwei"}] * 2)
    overrides = settings(pairs, chat_template="checkpoint", **places)
    tokenizer = load_tokenizer(folder)
    (group, _), _ = reward_run.read_data(load_config(RewardModelConfig, RANKER, overrides), tokenizer)
    assert group.candidates.prompt_ids == encoder(tokenizer)("turn: One")


def test_sixteen_bit_weights_leave_the_tables_of_positions_as_they_are(world):
    model = with_new_head("ranker", load_policy(world.policy))
    before = {name: table.numpy() for name, table in model.named_buffers()}
    cast_weights(model, "bfloat16")
    assert {str(weight.dtype) for weight in model.parameters()} == {"paddle.bfloat16"}
    assert len(before) > 3
    assert all((table.numpy() == before[name]).all() for name, table in model.named_buffers())


@pytest.mark.slow
def test_four_steps_of_two_ranks_equal_two_and_two_more(write_rows, settings, tmp_path):
    data = write_rows(scored_rows(24))  # three steps an epoch
    held = {"evaluation_strategy": "steps", "eval_steps": "1", "val_size": "0", "eval_datasets": str(data)}
    fixed = {"save_steps": "2", "lr_scheduler_type": "constant", **held}

    def start(output: str, max_steps: str) -> None:
        shared = {"per_device_train_batch_size": "4", "sharding": "stage1"}
        overrides = settings(data, output, max_steps=max_steps, **fixed, **shared)
        command = [str(SCRIPTS / "run_reward.py"), str(RANKER), *overrides]
        run(two_ranks(command, tmp_path / "logs"))

    start("whole", "4")
    start("parts", "2")
    assert largest_difference(tmp_path / "whole", tmp_path / "parts") > 0
    start("parts", "4")
    assert largest_difference(tmp_path / "whole", tmp_path / "parts") == 0
    told = [[line.get("loss"), line.get("eval_loss")] for line in metrics_of(tmp_path / "parts")]
    assert told == [[line.get("loss"), line.get("eval_loss")] for line in metrics_of(tmp_path / "whole")]


def test_pairs_and_groups_train_either_model(write_rows, settings, tmp_path):
    prompt = "Translate the following text from English into German:\nEnglish: One\nGerman:"
    pairs = write_rows([{"prompt": prompt, "chosen": f"Eins {i}", "rejected": "Zwei"} for i in range(8)])
    for yaml in (RANKER, PAIRWISE):
        train(yaml, settings(pairs, yaml.stem, max_steps="1", save_steps="1", chat_template="none"))
        trained_with = load_reward_model(tmp_path / yaml.stem).trained_with
        own = (trained_with.chat_template, trained_with.prompt_type, trained_with.language_pairs)
        assert own == ("none", None, ("en-de",))
        assert [(one.stage, one.file, one.rows) for one in trained_with.data] == [("reward", pairs.name, 8)]


@pytest.mark.parametrize("changes", [{"recompute": "true"}, {"bf16": "true", "fp16_opt_level": "O2"}])
def test_a_step_with_recomputation_or_in_sixteen_bits_has_a_finite_loss(write_rows, settings, tmp_path, changes):
    train(RANKER, settings(write_rows(scored_rows(8)), max_steps="1", save_steps="1", **changes))
    (loss,) = (line["loss"] for line in metrics_of(tmp_path / "out") if "loss" in line)
    assert np.isfinite(loss)
    load_reward_model(tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_train_epochs": "0.1", "max_steps": "-1"}, "are not one optimizer step"),
        ({"val_size": "40", "evaluation_strategy": "steps"}, "holding out 40 of 8 rows and all that share their"),
        ({"max_length": "10"}, "has no usable row (8 x longer than max_length = 10 tokens)"),
        ({"score_key": "gold"}, "gold is not among "),
        ({"mt_key": "texts"}, "has neither prompt, chosen, rejected nor src_text, src_lang, trg_lang, texts, scores"),
        ({"max_length": "5000"}, "rows may have 5000 tokens but the model has only 256 positions"),
        ({"width": "7"}, "the ranker's width is 7"),
    ],
)
def test_mistakes_are_told_in_one_sentence(write_rows, settings, capsys, changes, sentence):
    overrides = settings(write_rows(scored_rows(8)), **changes)
    assert sentence in ends_with_a_sentence(lambda: train(RANKER, overrides), capsys)


@pytest.mark.slow
@pytest.mark.parametrize("yaml", [RANKER, PAIRWISE], ids=["ranker", "pairwise"])
def test_lora_trains_the_head_and_adapters_resumes_and_leaves_a_whole_model(write_rows, settings, tmp_path, yaml):
    data = write_rows(scored_rows(24))
    lora = [
        "--lora",
        "true",
        "--lora_rank",
        "2",
        "--lora_target_modules",
        '["v_proj"]',
        "--lr_scheduler_type",
        "constant",
    ]

    def run_to(output: Path, steps: int) -> None:
        train(yaml, [*settings(data, max_steps=str(steps), save_steps="2"), *lora, "--output_dir", str(output)])

    run_to(tmp_path / "whole", 4)
    run_to(tmp_path / "parts", 2)
    halfway = weights(tmp_path / "parts")
    run_to(tmp_path / "parts", 4)
    assert largest_difference(tmp_path / "whole", tmp_path / "parts") == 0.0
    trained = {name for name, value in weights(tmp_path / "whole").items() if (value != halfway[name]).any()}
    of_backbone = {name.split(".")[-2] for name in trained if name.startswith("model.safetensors/")}
    assert of_backbone == {"v_proj"}
    assert any(not name.startswith("model.safetensors/") for name in trained)
    assert not list((tmp_path / "whole/checkpoint-4").glob("model*"))
    load_reward_model(tmp_path / "whole")
