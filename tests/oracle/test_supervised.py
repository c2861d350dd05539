"""Runs of SFT, DPO and reward models over uneven micro-batches, recomputed in float64 from what they left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import supervised
from oracle.conftest import ERRORS
from oracle.run_files import Run
from oracle.supervised import SupervisedOracle
from oracle.test_rl import LIMITS, OTHERWISE, Record
from oracle.world import write_oracle_policy
from support.rl_processes import CONFIGS, TinyWorld, environment
from support.rows import write_jsonl

pytestmark = pytest.mark.slow

COMMON = {
    "report_to": "none",
    "per_device_train_batch_size": "3",
    "gradient_accumulation_steps": "4",
    "max_length": "200",
    "val_size": "0",
    "evaluation_strategy": "no",
    "max_steps": "3",
    "save_steps": "1",
    "save_total_limit": "null",
    "logging_steps": "1",
    "learning_rate": "0.005",
    "lr_scheduler_type": "cosine",
    "num_cycles": "0.4",
    "warmup_steps": "0",
    "warmup_ratio": "0",
    "weight_decay": "0.3",
    "adam_beta1": "0.8",
    "adam_beta2": "0.95",
    "adam_epsilon": "0.0001",
    "max_grad_norm": "0.4",
}
SFT = {"init_from_config": "null", "prompt_key": "src", "response_key": "tgt", "train_on_prompt": "false"}
DPO = {"dpo_loss": "sigmoid", "dpo_beta": "0.3", "dpo_label_smoothing": "0", "sft_loss_ratio": "0.5"}
HEAD = {"gold_scale": "5", "squared_weight": "0.4", "backbone_learning_rate": "0.003", "blocks": "2", "compare": "none"}
POLYNOMIAL = {"lr_scheduler_type": "polynomial", "power": "2.0", "lr_end": "0.001", "warmup_steps": "1"}
# Entry script, argument file, data, settings.
JOBS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "sft": ("run_sft", "sft_tiny", "rows", SFT),
    "sft, prompts too": ("run_sft", "sft_tiny", "rows", {**SFT, **POLYNOMIAL, "train_on_prompt": "true"}),
    "dpo": ("run_dpo", "dpo_tiny", "pairs", DPO),
    "dpo, smoothed": ("run_dpo", "dpo_tiny", "pairs", {**DPO, "dpo_label_smoothing": "0.2"}),
    "dpo, ipo": ("run_dpo", "dpo_tiny", "pairs", {**DPO, "dpo_loss": "ipo"}),
    "dpo, hinge": ("run_dpo", "dpo_tiny", "pairs", {**DPO, "dpo_loss": "hinge", "sft_loss_ratio": "0"}),
    "ranker": ("run_reward", "ranker_tiny", "groups", {**HEAD, "reward_model": "ranker"}),
    "ranker, group": ("run_reward", "ranker_tiny", "groups", {**HEAD, "reward_model": "ranker", "compare": "group"}),
    "pairwise": ("run_reward", "rm_tiny", "pairs", {**HEAD, "reward_model": "pairwise", "squared_weight": "0"}),
    "pairwise, groups": ("run_reward", "rm_tiny", "groups", {**HEAD, "reward_model": "pairwise"}),
}
LOSSES = {"run_sft": supervised.sft, "run_dpo": supervised.dpo, "run_reward": supervised.reward_model}


def text(i: int, n_words: int) -> str:
    """Some words, different for each i."""
    words = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]
    return " ".join(words[(i * 3 + k * (i + 1)) % 8] for k in range(n_words))


def write_data(folder: Path) -> dict[str, Path]:
    """Twelve rows of each kind, one optimizer step, with responses of one to twenty words."""
    lengths = [1, 1, 1, 20, 2, 3, 14, 9, 1, 4, 17, 1]
    rows, pairs, groups = [], [], []
    for i, n in enumerate(lengths):
        turn = f"Translate the following text from English into German:\nEnglish: number {i}\nGerman:"
        prompt = f"<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n"
        rows.append({"src": prompt, "tgt": text(i, n)})
        pairs.append({"prompt": turn, "chosen": text(i, n), "rejected": text(i + 1, 1 + n // 2) + "?"})
        texts = [text(i + k, 1 + (n * (k + 1)) // 3) for k in range(2 + i % 3)]
        scores = [float((i * 7 + k * k * 3) % 10) for k in range(len(texts))]
        texts.append(texts[0])  # a copy, with a gold score of its own
        scores.append(scores[0] + 0.1)
        groups.append(
            {"src_text": f"number {i}", "src_lang": "en", "trg_lang": "de", "mt_texts": texts, "scores": scores}
        )
    paths = {}
    for name, lines in (("rows", rows), ("pairs", pairs), ("groups", groups)):
        paths[name] = folder / f"{name}.jsonl"
        write_jsonl(paths[name], lines)
    return paths


@pytest.fixture(scope="module")
def runs(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Every job, run one after the other in one process."""
    folder = tmp_path_factory.mktemp("supervised")
    policy, data = write_oracle_policy(world, folder / "policy"), write_data(folder)
    found, jobs = {}, []
    for name, (script, yaml, rows, settings) in JOBS.items():
        places = {"model_name_or_path": str(policy), "train_datasets": str(data[rows])}
        chosen = {**COMMON, **settings, **places, "tokenizer_name_or_path": str(policy)}
        run = Run(folder / name.replace(", ", "-"), CONFIGS / f"{yaml}_argument.yaml", chosen)
        words = [
            word for key, value in (*chosen.items(), ("output_dir", str(run.folder))) for word in (f"--{key}", value)
        ]
        jobs.append([script, [str(run.argument_file), *words]])
        found[name] = run
    done = subprocess.run(
        [sys.executable, "-m", "oracle.several_runs"],
        input=json.dumps(jobs), capture_output=True, text=True, env=environment(), timeout=240, check=False,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return found


@pytest.mark.parametrize("name", JOBS)
def test_a_supervised_run(name: str, runs: dict[str, Run], record_property: Record) -> None:
    script = JOBS[name][0]
    oracle = SupervisedOracle(runs[name], LOSSES[script], first=int(script == "run_reward"))
    comparison = oracle.check()
    record_property(ERRORS, json.dumps({name: comparison.errors}))
    assert comparison.too_large(LIMITS, OTHERWISE) == {}
