"""Preference optimization of a tiny policy: the loss is PaddleNLP's, pairs come to be in order, runs resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paddlenlp.trl import DPOCriterion
from safetensors.numpy import load_file
from support.rl_processes import CONFIGS, TinyWorld, metrics_of, train_here
from support.rows import write_jsonl

from grrm.config import DPOConfig, load_config
from grrm.data.preference.instructions import write_instructions
from grrm.dpo import run as dpo_run
from grrm.dpo.trainer import DPOSettings, PairTrainer
from grrm.errors import UserError
from grrm.gqm.chat import EOS_TEXT, render_chatml
from grrm.models.packing import PackedTokens, pack_rows
from grrm.models.policy import load_policy
from grrm.models.token_scores import score_responses
from grrm.models.tokenizer import encoder, load_tokenizer, text_encoder
from grrm.models.value_head import CandidateGroup
from grrm.training.gold_groups import GoldGroup

TINY = CONFIGS / "dpo_tiny_argument.yaml"
WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]


def pair_rows(n_rows: int) -> list[dict[str, str]]:
    """Chosen responses end in a full stop, rejected ones in a question mark."""
    rows = []
    for i in range(n_rows):
        word, other = WORDS[i % 8], WORDS[i // 8 % 8]
        prompt = f"Translate the following text from English into German:\nEnglish: {word} {i}\nGerman:"
        rows.append({"prompt": prompt, "chosen": f"{word} {other}.", "rejected": f"{word} {other}?"})
    return rows


def words_of(world: TinyWorld, data: Path, output: Path, **changes: str) -> list[str]:
    values = {
        "model_name_or_path": str(world.policy),
        "train_datasets": str(data),
        "output_dir": str(output),
        "report_to": "none",
        "per_device_train_batch_size": "8",
        "max_length": "200",
        "val_size": "0",
        "evaluation_strategy": "no",
        "max_steps": "2",
        "save_steps": "2",
        "warmup_ratio": "0",
        "logging_steps": "1",
        "learning_rate": "0.001",
        **changes,
    }
    return [text for key, value in values.items() for text in (f"--{key}", value)]


def train(words: list[str]) -> None:
    train_here(dpo_run.train, load_config(DPOConfig, TINY, words))


def log_likelihoods(folder: Path, rows: list[dict[str, str]]) -> np.ndarray:
    """[pairs, 2] log-likelihoods of chosen and rejected responses, and their lengths."""
    tokenizer = load_tokenizer(str(folder))
    encode, encode_text = encoder(tokenizer), text_encoder(tokenizer)
    end = encode(EOS_TEXT)
    prompts = [encode(render_chatml(row["prompt"])) for row in rows for _ in range(2)]
    responses = [encode_text(row[name]) + end for row in rows for name in ("chosen", "rejected")]
    scored = score_responses(
        load_policy(str(folder)), prompts, responses, pad_id=tokenizer.pad_token_id, batch_size=8, temperature=1.0
    )
    return np.array([[part.sum(), len(part)] for part in scored]).reshape(len(rows), 2, 2)


def expected_loss(policy: np.ndarray, reference: np.ndarray, config: DPOConfig) -> float:
    """PaddleNLP's criterion on log-likelihoods, and the chosen tokens' likelihood beside it."""
    of_model = SimpleNamespace(tensor_parallel_output=False, tensor_parallel_degree=1)
    criterion = DPOCriterion(of_model, dpo_config=DPOSettings.of(config))
    policy_P, reference_P = (
        part[..., 0] / (part[..., 1] if config.dpo_loss == "ipo" else 1.0) for part in (policy, reference)
    )
    columns = [paddle.to_tensor(part[:, side], dtype="float32") for part in (policy_P, reference_P) for side in (0, 1)]
    sft = -policy[:, 0, 0].sum() / policy[:, 0, 1].sum()
    return float(criterion.dpo_loss(*columns)) + config.sft_loss_ratio * sft


@pytest.mark.parametrize("dpo_loss", ["sigmoid", "ipo"])
def test_loss_and_metrics_are_those_of_the_pairs(world: TinyWorld, tmp_path: Path, dpo_loss: str) -> None:
    rows = pair_rows(8)
    data = write_jsonl(tmp_path / "pairs.jsonl", rows)
    evaluated = {"evaluation_strategy": "steps", "eval_steps": "1", "eval_datasets": str(data)}
    words = words_of(world, data, tmp_path / "out", dpo_loss=dpo_loss, per_device_eval_batch_size="3", **evaluated)
    train(words)
    config = load_config(DPOConfig, TINY, words)
    lines = metrics_of(tmp_path / "out")
    assert all(line["train_tokens_a_second"] > 0 for line in lines if "loss" in line)
    template = json.loads((world.policy / "tokenizer_config.json").read_text())["chat_template"]
    assert (tmp_path / "out/chat_template.jinja").read_text(encoding="utf-8") == template
    first, *_ = (line for line in lines if "loss" in line)
    reference, trained = log_likelihoods(world.policy, rows), log_likelihoods(tmp_path / "out", rows)
    assert first["loss"] == pytest.approx(expected_loss(reference, reference, config), rel=1e-4)
    assert first["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    *_, last = (line for line in lines if "eval_loss" in line)
    assert last["eval_loss"] == pytest.approx(expected_loss(trained, reference, config), rel=1e-4)
    gain = (trained - reference)[..., 0]
    if dpo_loss == "ipo":
        gain /= reference[..., 1]
    else:
        assert first["logps/chosen"] == pytest.approx(reference[:, 0, 0].mean(), rel=1e-4)
    margins = config.dpo_beta * (gain[:, 0] - gain[:, 1])
    assert last["eval_margin"] == pytest.approx(margins.mean(), abs=1e-4)
    assert last["eval_pair_accuracy"] == (margins > 0).mean()


def test_a_line_of_two_steps_has_the_means_of_theirs(world: TinyWorld, tmp_path: Path) -> None:
    """Whether or not pairs that are held out are scored between them."""
    data = write_jsonl(tmp_path / "pairs.jsonl", pair_rows(16))
    evaluated = {"evaluation_strategy": "steps", "eval_steps": "1", "eval_datasets": str(data)}
    found = []
    for steps in ("1", "2"):
        train(words_of(world, data, tmp_path / steps, max_steps="4", save_steps="4", logging_steps=steps, **evaluated))
        lines = [line for line in metrics_of(tmp_path / steps) if "loss" in line]
        names = [name for name in lines[0] if name.startswith(("rewards/", "logps/", "sigmoid_loss", "sft_loss"))]
        found.append(np.array([[line[name] for name in names] for line in lines]))
    assert found[0].shape == (4, 8)
    np.testing.assert_allclose(found[1], found[0].reshape(2, 2, 8).mean(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("lengths", "n_tokens"),
    [([(8, 3, 2)], 8 + 2 + 1), ([(1, 6, 6)], 1 + 5 + 5), ([(1, 1, 1), (8, 3, 3)], 1 + 8 + 2 + 2)],
)
def test_a_prompt_is_computed_once_for_both_responses(
    world: TinyWorld, monkeypatch: pytest.MonkeyPatch, lengths: list[tuple[int, int, int]], n_tokens: int
) -> None:
    """The last token of a response predicts nothing and is not computed."""
    packed: list[paddle.Tensor] = []

    def pack(*args: Any, **options: Any) -> PackedTokens:
        tokens = pack_rows(*args, **options)
        packed.append(tokens.input_ids)
        return tokens

    monkeypatch.setattr("grrm.dpo.trainer.pack_rows", pack)
    pairs = [
        GoldGroup(CandidateGroup([5] * prompt, [[6] * one, [7] * other]), (1.0, 0.0), "en-de", True)
        for prompt, one, other in lengths
    ]
    settings = {"tokenizer": SimpleNamespace(pad_token_id=0), "dpo_config": SimpleNamespace(loss_type="sigmoid")}
    model = load_policy(world.policy)
    PairTrainer._log_likelihoods(SimpleNamespace(**settings), model, model.lm_head, pairs)
    assert [int((ids_BT != 0).sum()) for ids_BT in packed] == [n_tokens]


def test_pairs_come_to_be_in_order(world: TinyWorld, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "pairs.jsonl", pair_rows(64))
    held = write_jsonl(tmp_path / "held.jsonl", pair_rows(90)[64:])
    evaluated = {"evaluation_strategy": "steps", "eval_steps": "20", "eval_datasets": str(held)}
    train(words_of(world, data, tmp_path / "out", max_steps="20", save_steps="20", learning_rate="0.003", **evaluated))
    (found,) = (line for line in metrics_of(tmp_path / "out") if "eval_loss" in line)
    assert found["eval_pair_accuracy"] > 0.9
    assert found["eval_margin"] > 0.1


def test_the_pairs_of_the_data_command_are_read(world: TinyWorld, tmp_path: Path) -> None:
    rows = [
        {"src_text": f"one {i}", "src_lang": "en", "trg_lang": "de", "winner_text": f"eins {i}", "loser_text": "zwei"}
        for i in range(8)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pairs.parquet")
    path = write_instructions(tmp_path / "pairs.parquet", tmp_path / "rows.parquet").path
    train(words_of(world, path, tmp_path / "out", max_steps="1", save_steps="1"))
    assert (tmp_path / "out/model.safetensors").is_file()


@pytest.mark.parametrize("is_apart", [True, False])
def test_the_checkpoints_template_is_that_of_the_tokenizers_folder(
    world: TinyWorld, tmp_path: Path, is_apart: bool
) -> None:
    folder = shutil.copytree(world.policy, tmp_path / "tokenizer")
    (folder / "chat_template.jinja").write_text("turn: {{ messages[0]['content'] }}")
    places = {"tokenizer_name_or_path": str(folder)} if is_apart else {"model_name_or_path": str(folder)}
    data = write_jsonl(tmp_path / "pairs.jsonl", pair_rows(2))
    words = words_of(world, data, tmp_path / "out", chat_template="checkpoint", **places)
    tokenizer = load_tokenizer(folder)
    (pair, _), _ = dpo_run.read_data(load_config(DPOConfig, TINY, words), tokenizer)
    assert pair.candidates.prompt_ids == encoder(tokenizer)("turn: " + pair_rows(1)[0]["prompt"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dpo_loss": "hinge", "dpo_label_smoothing": "0.1"}, "dpo_label_smoothing has no effect with dpo_loss hinge"),
        ({"dpo_beta": "0"}, "dpo_beta is 0; it must be above 0"),
        ({"dpo_loss": "simpo"}, "dpo_loss is 'simpo'; give one of sigmoid, hinge, ipo"),
    ],
)
def test_settings_that_make_no_sense_are_told(world: TinyWorld, tmp_path: Path, changes, message) -> None:
    data = write_jsonl(tmp_path / "pairs.jsonl", pair_rows(8))
    with pytest.raises(UserError, match=message):
        load_config(DPOConfig, TINY, words_of(world, data, tmp_path / "out", **changes))


def test_a_file_of_other_rows_is_told(world: TinyWorld, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "pairs.jsonl", [{"src": "a", "tgt": "b"}])
    with pytest.raises(UserError, match=r"lacks prompt, chosen, rejected .*make it with `grrm data pair-instructions`"):
        train(words_of(world, data, tmp_path / "out"))


def test_lora_trains_the_projections_that_it_names_and_leaves_a_whole_policy(world: TinyWorld, tmp_path: Path) -> None:
    lora = {"lora": "true", "lora_rank": "4", "lora_target_modules": '["q_proj", "up_proj"]', "max_steps": "4"}
    train(
        words_of(world, write_jsonl(tmp_path / "pairs.jsonl", pair_rows(12)), tmp_path / "out", save_steps="4", **lora)
    )
    before, after = (load_file(folder / "model.safetensors") for folder in (world.policy, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert {name.split(".")[-2] for name in after if (before[name] != after[name]).any()} == {"q_proj", "up_proj"}
    assert not list((tmp_path / "out/checkpoint-4").glob("model*"))
