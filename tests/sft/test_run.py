"""The supervised stage: its length in epochs, a finished run, and its mistakes told in one sentence."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from sft.sft_runs import TINY, label_logprobs, sft_settings, train
from support.command_line import ends_with_a_sentence, the_sentence
from support.rl_processes import CONFIGS, SCRIPTS, TinyWorld, metrics_of, one_rank, run, train_here, two_ranks
from support.tiny_models import EXPERTS, save_as_hugging_face

from grrm.config import SFTConfig, load_config
from grrm.data.dataset import SftItem
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.mt_prompts import mt_prompt
from grrm.inference.translate import prompts_of
from grrm.models.policy import load_policy
from grrm.models.tokenizer import load_tokenizer
from grrm.models.trained_with import read_trained_with
from grrm.sft import run as sft_run
from grrm.sft.trainer import RowLoss, SftCollator, SftTrainer, held_out_summary
from grrm.tracking.metrics_log import read_metrics
from grrm.training.checkpoints import MARKER
from grrm.training.model_setup import check_same_tokens
from grrm.training.supervised_run import SupervisedRun


@pytest.mark.parametrize(("drop_last", "steps"), [("false", 6), ("true", 4)])
def test_supervised_epochs_are_trained_and_a_finished_run_is_left_alone(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop_last: str, steps: int
) -> None:
    overrides = sft_settings(world, tmp_path, dataloader_drop_last=drop_last, save_steps=str(steps))
    train(overrides)
    assert [line["step"] for line in read_metrics(tmp_path / "out")] == list(range(1, steps + 1))
    before, after = (load_file(folder / "model.safetensors") for folder in (world.policy, tmp_path / "out"))
    assert any((before[name] != after[name]).any() for name in after)
    monkeypatch.setattr(sft_run.SftTrainer, "train", lambda *args, **options: pytest.fail("trained again"))
    train(overrides)
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert all((again[name] == after[name]).all() for name in after)


def test_a_run_on_other_rows_or_in_another_order_or_of_another_stage_is_not_gone_on_with(
    world: TinyWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = sft_settings(world, tmp_path, save_steps="2")
    train([*overrides, "--max_steps", "2"])
    capsys.readouterr()
    train([*overrides, "--max_steps", "4"])
    assert f"going on from '{tmp_path / 'out/checkpoint-2'}'" in capsys.readouterr().err
    told = ends_with_a_sentence(lambda: train([*overrides, "--max_steps", "6", "--seed", "7"]), capsys)
    assert "checkpoint-4' is of a run with seed 42, and this one has 7, which would skip or repeat rows" in told
    record = tmp_path / "out/checkpoint-4/grrm.json"
    before = record.read_text()
    record.write_text(before.replace('"stage": "sft"', '"stage": "rl"'))
    told = ends_with_a_sentence(lambda: train([*overrides, "--max_steps", "6"]), capsys)
    assert (
        "checkpoint-4' is of a run on the stage rl, and this one is on the stage sft: name another output_dir" in told
    )
    record.write_text(before)
    with (tmp_path / "sft.jsonl").open("a") as file:
        file.write(json.dumps({"src": "say 10", "tgt": "10"}) + "\n")
    told = ends_with_a_sentence(lambda: train([*overrides, "--max_steps", "6"]), capsys)
    assert "checkpoint-4' is of a run on 10 rows of sft.jsonl (" in told
    assert "and this one is on 11 rows of sft.jsonl (" in told
    elsewhere = ["--resume_from_checkpoint", str(record.parent), "--output_dir", str(tmp_path / "other")]
    told = ends_with_a_sentence(lambda: train([*overrides, *elsewhere, "--max_steps", "6"]), capsys)
    assert "remove resume_from_checkpoint, or give it as the model to start from its weights" in told
    train([*overrides, "--max_steps", "1", "--overwrite_output_dir", "true"])
    for path in (tmp_path / "out").glob("checkpoint-*/grrm.json"):
        path.unlink()
    (tmp_path / "sft.jsonl").write_text(json.dumps({"src": "say", "tgt": "1"}) * 1 + "\n")
    told = ends_with_a_sentence(lambda: train([*overrides, "--max_steps", "1"]), capsys)
    assert f"'{tmp_path / 'out'}' is of a run on 11 rows of sft.jsonl" in told


def test_last_step_is_logged_between_the_logging_steps(world: TinyWorld, tmp_path: Path) -> None:
    overrides = sft_settings(world, tmp_path, max_steps="3", logging_steps="2", save_steps="3")
    train(overrides)
    assert [line["step"] for line in read_metrics(tmp_path / "out")] == [2, 3]
    assert all(line["train_tokens_a_second"] > 0 for line in read_metrics(tmp_path / "out"))
    assert all(0 <= line["frac_padding"] < 1 for line in read_metrics(tmp_path / "out"))
    for folder in (tmp_path / "out", tmp_path / "out/checkpoint-3"):
        kept = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        assert kept == json.loads((world.policy / "tokenizer_config.json").read_text())["chat_template"]


def test_messages_are_learned_under_the_models_own_template_which_translation_takes_from_there(
    world: TinyWorld, tmp_path: Path
) -> None:
    policy, prompt = tmp_path / "policy", mt_prompt("Hallo", "de", "en", "Tower")
    shutil.copytree(world.policy, policy)
    settings = json.loads((policy / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}({{ m.role }}: {{ m.content }}){% endfor %}>"
    (policy / "tokenizer_config.json").write_text(json.dumps(settings))
    (policy / "chat_template.jinja").unlink(missing_ok=True)
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "Hello"}]
    own = {"model_name_or_path": str(policy), "tokenizer_name_or_path": str(policy), "max_steps": "1"}
    overrides = sft_settings(world, tmp_path, **own, per_device_train_batch_size="1")
    (tmp_path / "sft.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    train(overrides)
    (item,) = sft_run.read_data(load_config(SFTConfig, TINY, overrides), load_tokenizer(policy))[0]
    assert item.prompt_text == f"(user: {prompt})>"
    assert load_tokenizer(policy).decode(item.input_ids[item.prompt_len : -1]) == "Hello"
    trained = read_trained_with(tmp_path / "out")
    assert prompts_of(trained, None, None).chat_template == "checkpoint"
    assert load_tokenizer(tmp_path / "out").apply_chat_template(prompt, tokenize=False) == item.prompt_text


def test_held_out_rows_are_scored_during_training(world: TinyWorld, tmp_path: Path) -> None:
    held = {"evaluation_strategy": "steps", "eval_steps": "2", "max_steps": "2", "save_steps": "2"}
    overrides = sft_settings(world, tmp_path, **held, val_size="3", per_device_eval_batch_size="2")
    config = load_config(SFTConfig, TINY, overrides)
    train_here(sft_run.train, config)
    trained, evaluated = read_metrics(tmp_path / "out")[-2:]
    assert (trained["step"], evaluated["step"]) == (2, 2)
    tokenizer, model = load_tokenizer(tmp_path / "out"), load_policy(tmp_path / "out")
    train, held_out = sft_run.read_data(config, tokenizer)
    assert (len(train), len(held_out)) == (7, 3)
    losses = [-logprob for item in held_out for logprob in label_logprobs(model, item)]
    assert evaluated["eval_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert evaluated["eval_loss_per_row"] == pytest.approx(sum(losses) / 3, rel=1e-4)
    assert evaluated["eval_loss_low"] <= evaluated["eval_loss"] <= evaluated["eval_loss_high"]
    assert evaluated["eval_language_pairs"]["unknown"]["tokens"] == len(losses)


def test_a_held_out_loss_that_is_not_finite_is_one_sentence(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"evaluation_strategy": "steps", "eval_steps": "1", "max_steps": "1", "save_steps": "1", "val_size": "3"}
    overrides = sft_settings(world, tmp_path, **held)
    monkeypatch.setattr(SftTrainer, "_losses", lambda self, items: [RowLoss(float("nan"), 0.0)] * len(items))
    with pytest.raises(UserError, match=r"the held-out loss is nan in step 1: training has diverged, lower"):
        train(overrides)


@pytest.mark.parametrize(("steps", "unified"), [("2", "false"), ("3", "true")])
def test_the_best_checkpoint_of_a_run_that_was_moved_is_the_model_in_the_end(
    world: TinyWorld, tmp_path: Path, steps: str, unified: str
) -> None:
    chosen = {"metric_for_best_model": "loss", "greater_is_better": "true", "load_best_model_at_end": "true"}
    settings = {"val_size": "4", "evaluation_strategy": "steps", "eval_steps": "1", "save_steps": "1", **chosen}
    settings |= {"learning_rate": "0.01", "lr_scheduler_type": "constant", "warmup_ratio": "0"}
    settings |= {"unified_checkpoint": unified, "num_train_epochs": "1", "per_device_train_batch_size": "2"}
    first = tmp_path / "first"
    train(sft_settings(world, tmp_path, max_steps="2", output_dir=str(first), **settings))
    state = json.loads((first / "checkpoint-2/trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(first / "checkpoint-1")
    (first / MARKER).unlink()
    before = load_file(first / "model.safetensors")
    moved = first.rename(tmp_path / "moved")
    train(sft_settings(world, tmp_path, max_steps=steps, output_dir=str(moved), **settings))
    after = load_file(moved / "model.safetensors")
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_held_out_loss_is_told_by_language_pair() -> None:
    def item(prompt: str, n_labels: int) -> SftItem:
        return SftItem(0, [1] * (2 + n_labels), [], 2, prompt)

    german, chinese = mt_prompt("Hallo", "de", "en", "Tower"), render_chatml(mt_prompt("你好", "zh", "en", "Tower"))
    items = [item(german, 3), item(chinese, 4), item(german, 1), item("Name a colour.", 2)]
    metrics, by_pair = held_out_summary(items, [RowLoss(loss, 0.0) for loss in (6.0, 2.0, 0.0, 12.0)])
    assert metrics["eval_loss"] == 2.0
    assert metrics["eval_loss_per_row"] == 5.0
    assert {name: (found["rows"], found["tokens"], found["loss"][0]) for name, found in by_pair.items()} == {
        "de-en": (2, 4, 1.5),
        "unknown": (1, 2, 6.0),
        "zh-en": (1, 4, 0.5),
    }
    assert by_pair["de-en"]["loss"][1:] == [0.0, 2.0]


@pytest.mark.parametrize(("kind", "changes"), [("qwen3", {"head_dim": 12}), ("qwen2_moe", EXPERTS)])
def test_a_fresh_model_of_another_kind_learns(kind: str, changes: dict, world: TinyWorld, tmp_path: Path) -> None:
    shape = json.loads((CONFIGS / "tiny_model_config.json").read_text()) | {"model_type": kind, **changes}
    (tmp_path / "shape.json").write_text(json.dumps(shape))
    fresh = {"init_from_config": str(tmp_path / "shape.json"), "model_name_or_path": "null"}
    train(sft_settings(world, tmp_path, **fresh, max_steps="4", learning_rate="0.01", logging_steps="1"))
    losses = [line["loss"] for line in metrics_of(tmp_path / "out") if "loss" in line]
    assert losses[-1] < losses[0]
    assert load_policy(tmp_path / "out").config.model_type == kind


def test_loss_is_the_mean_over_response_tokens_of_all_rows(world: TinyWorld, tmp_path: Path) -> None:
    overrides = sft_settings(world, tmp_path)
    config = load_config(SFTConfig, TINY, overrides)
    model = load_policy(world.policy)
    rows, _ = sft_run.read_data(config, load_tokenizer(world.policy))
    items = [rows[0], SftItem(1, [5, 6, 7, 8, 9], [], 2, "")]
    logprobs = [logprob for item in items for logprob in label_logprobs(model, item)]
    batch = SftCollator(0)(items)
    tokens = {"tokens": float(len(logprobs))}
    assert SftTrainer.count(SimpleNamespace(), batch) == tokens
    trainer = SimpleNamespace(model=model, model_inputs=partial(SftTrainer.model_inputs, None))
    logprobs_N = SftTrainer.outputs(trainer, model, batch)
    loss = SftTrainer.loss_share(SimpleNamespace(), logprobs_N, batch, tokens)
    assert float(loss) == pytest.approx(-np.mean(logprobs), rel=1e-4)


def test_held_out_rows_are_scored_without_dropout_and_training_goes_on_with_it(world: TinyWorld) -> None:
    model, was_training = load_policy(world.policy), list[bool]()
    model.register_forward_pre_hook(lambda layer, _: was_training.append(layer.training))
    model.train()
    trainer = SimpleNamespace(
        args=SimpleNamespace(per_device_eval_batch_size=2),
        model=model,
        data_collator=SftCollator(0),
        autocast_smart_context_manager=nullcontext,
    )
    SftTrainer._losses(trainer, [SftItem(0, [5, 6, 7, 8], [], 2, "")] * 3)
    assert was_training == [False, False]
    assert model.training


@pytest.mark.parametrize(("row_tokens", "shape"), [(0, [4, 4]), (13, [1, 13])])
def test_rows_are_as_long_as_the_longest_item_or_filled_up(row_tokens: int, shape: list[int]) -> None:
    items = [SftItem(0, list(range(n)), [], 2, "") for n in (5, 4, 4, 4)]  # nothing is computed for the last token
    assert SftCollator(0, row_tokens)(items)["input_ids"].shape == shape


@pytest.mark.parametrize(("reads_ranges", "row_tokens"), [(True, 200), (False, 0)])
def test_rows_are_filled_up_to_max_length_where_attention_skips_what_is_hidden(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_ranges: bool, row_tokens: int
) -> None:
    collators, model = [], load_policy(world.policy)
    model.reads_ranges = reads_ranges
    monkeypatch.setattr(sft_run, "build_model", lambda *_: model)
    monkeypatch.setattr(SupervisedRun, "train", lambda self, trainer: collators.append(trainer.data_collator))
    overrides = sft_settings(world, tmp_path, max_length="200")
    train(overrides)
    assert collators == [SftCollator(load_tokenizer(world.policy).pad_token_id, row_tokens)]


def test_a_tokenizer_of_another_model_is_refused_and_one_with_more_tokens_is_not(
    world: TinyWorld, tmp_path: Path
) -> None:
    other = shutil.copytree(world.policy, tmp_path / "other")
    stored = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    stored["model"]["vocab"] = {token: number + 1 for token, number in stored["model"]["vocab"].items()}
    (other / "tokenizer.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(UserError, match=rf"the model in '{other}' learned other tokens: 0 of the \d+ that"):
        train(sft_settings(world, tmp_path, model_name_or_path=str(other)))
    further = load_tokenizer(world.policy)
    further.add_tokens(["<one more>"])
    check_same_tokens(further, str(world.policy))
    check_same_tokens(further, str(tmp_path))  # where nothing is known


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_train_epochs": "0.1"}, "10 examples for 0.1 epochs are not one optimizer step"),
        ({"per_device_train_batch_size": "16", "dataloader_drop_last": "true"}, "10 examples do not fill one batch"),
        (
            {"per_device_train_batch_size": "16", "dataloader_drop_last": "true", "max_steps": "2"},
            "10 examples do not fill one batch, and dataloader_drop_last leaves the rest out",
        ),
        ({"prompt_key": "source"}, "line 1 has no key 'source'"),
        ({"train_datasets": "{tmp}/rl.jsonl"}, "line 1 has a task for RL as its 'tgt'; give the file that"),
        ({"train_datasets": "{tmp}/x.parquet"}, "is not of JSON lines, which training reads"),
        ({"frozen_layers": "2"}, "frozen_layers is 2, but the model has 2 layers"),
        ({"max_length": "5000"}, "rows may have 5000 tokens but the model has only 256 positions"),
        ({"max_length": "1"}, "all 10 rows are longer than max_length = 1 tokens"),
        ({"model_name_or_path": "null", "init_from_config": "{tmp}/broken.json"}, "is not a readable JSON file"),
        ({"model_name_or_path": "null", "init_from_config": "{tmp}/list.json"}, "is not a JSON object"),
        ({"model_name_or_path": "null", "init_from_config": "{tmp}/bert.json"}, "model_type 'bert' is not supported"),
    ],
)
def test_supervised_stage_tells_its_mistakes(
    world: TinyWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, str], sentence: str
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "bert.json").write_text('{"model_type": "bert"}')
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    task = {"source": "a", "src_lang": "en", "trg_lang": "de", "reference": None}
    (tmp_path / "rl.jsonl").write_text(json.dumps({"src": "a", "tgt": json.dumps(task)}) + "\n")
    settings = {key: value.format(tmp=tmp_path) for key, value in settings.items()}
    overrides = sft_settings(world, tmp_path, **settings)
    yaml = TINY
    said = ends_with_a_sentence(lambda: train(overrides, yaml), capsys)
    assert sentence in said


@pytest.mark.slow
@pytest.mark.parametrize("save_steps", ["1", "9"], ids=["paddle", "safetensors"])  # a checkpoint; the model at the end
def test_a_disk_that_is_full_as_weights_are_saved_is_one_sentence(
    world: TinyWorld, tmp_path: Path, save_steps: str
) -> None:
    full_disk = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 15))"
    settings = sft_settings(world, tmp_path, max_steps="1", save_steps=save_steps)
    command = [sys.executable, "-c", f"{full_disk}; from grrm.cli import main; main()", "sft", str(TINY), *settings]
    assert "(File too large): make room, or write" in the_sentence(run(command, expect=2).stderr)


@pytest.mark.slow
def test_two_ranks_find_the_held_out_loss_that_one_finds(world: TinyWorld, tmp_path: Path) -> None:
    """Five rows for two ranks, one of which has one more; before the first step moves anything much."""
    fixed = {"evaluation_strategy": "steps", "eval_steps": "1", "max_steps": "1", "save_steps": "1", "val_size": "5"}
    found = []
    for name, launched, rows in (("one", one_rank, "4"), ("two", partial(two_ranks, logs=tmp_path / "logs"), "2")):
        changes = {"output_dir": str(tmp_path / name), "per_device_train_batch_size": rows, "learning_rate": "1e-9"}
        settings = sft_settings(world, tmp_path, **fixed, **changes, lr_end="0")
        run(launched([str(SCRIPTS / "run_sft.py"), str(TINY), *settings]))
        found.append(next(line for line in metrics_of(tmp_path / name) if "eval_loss" in line))
    for key in ("eval_loss", "eval_loss_low", "eval_loss_high"):
        assert found[0][key] == pytest.approx(found[1][key], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["hugging face", "nothing"])
def test_tensor_ranks_train_what_one_process_trains(world: TinyWorld, tmp_path: Path, start: str) -> None:
    """From a checkpoint, or weights drawn for a config; a batch of all rows, whatever their order."""
    changes = {"per_device_train_batch_size": "10", "num_train_epochs": "3", "save_steps": "3"}
    if start == "nothing":
        changes |= {"init_from_config": str(CONFIGS / "tiny_model_config.json"), "model_name_or_path": "null"}
    if start == "hugging face":
        save_as_hugging_face(load_policy(world.policy), tmp_path / "theirs")
        changes["model_name_or_path"] = str(tmp_path / "theirs")
    divided = {"tensor_parallel_degree": "2", "sequence_parallel": "true", "recompute": "true"}
    found = []
    for name, launched, layout in (("one", one_rank, {}), ("two", partial(two_ranks, logs=tmp_path / "logs"), divided)):
        settings = sft_settings(world, tmp_path, output_dir=str(tmp_path / name), **changes, **layout)
        run(launched([str(SCRIPTS / "run_sft.py"), str(TINY), *settings]))
        found.append(load_file(tmp_path / name / "model.safetensors"))
    losses = [[line["loss"] for line in metrics_of(tmp_path / name)] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert found[0].keys() == found[1].keys()
    for name, weight in found[0].items():
        # Adam moves a weight by its learning rate whatever the size of the gradient: of one next to zero rounding
        # decides the sign.
        apart = np.abs(found[1][name] - weight)
        assert (apart > 1e-4).sum() <= weight.size * 1e-4, name
        assert apart.max() < 1e-3, f"{name}: half of what a step at this learning rate moves a weight by"


def test_lora_trains_the_projections_that_it_names_and_leaves_a_whole_model(world: TinyWorld, tmp_path: Path) -> None:
    lora = {"lora": "true", "lora_rank": "4", "lora_target_modules": '["q_proj", "up_proj"]', "learning_rate": "0.01"}
    overrides = sft_settings(world, tmp_path, max_steps="24", save_steps="24", **lora)
    train(overrides)
    before, after = (load_file(folder / "model.safetensors") for folder in (world.policy, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert {name.split(".")[-2] for name in after if (before[name] != after[name]).any()} == {"q_proj", "up_proj"}
    losses = [line["loss"] for line in read_metrics(tmp_path / "out")]
    assert np.mean(losses[-6:]) < np.mean(losses[:6])
    assert not list((tmp_path / "out/checkpoint-24").glob("*.safetensors"))
