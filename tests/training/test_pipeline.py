"""A policy whose layers are divided into stages trains, scores, samples, saves and resumes as in one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import (
    CONFIGS,
    SCRIPTS,
    TinyWorld,
    entry_command,
    held_out_settings,
    metrics_of,
    on_ranks,
    one_rank,
    run,
)
from support.rows import write_jsonl
from support.tiny_policy import write_policy

from grrm.models.policy import load_policy

pytestmark = pytest.mark.slow

STAGES = {"pipeline_parallel_degree": "2"}
TENSOR = {**STAGES, "tensor_parallel_degree": "2"}
LAYOUTS = {
    "stages": (2, STAGES),
    "stages and tensor parallel": (4, TENSOR),
    "three stages": (3, {"pipeline_parallel_degree": "3"}),  # of which the second sends and receives both ways
}
# Log-probs of the policy before its update, and of a reference; four micro-batches an update.
SCORED = {
    "kl_loss_coeff": "0.1",
    "update_iters": "2",
    "per_device_train_batch_size": "4",
    "max_steps": "4",
    "save_steps": "4",
    "adam_epsilon": "1e-6",  # above the gradients that are rounding alone, whose updates would be as large as others'
}


ELSEWHERE = pytest.mark.scale  # what `make test-scale` runs of these matrices
KINDS = ["qwen2, tied", *(pytest.param(kind, marks=ELSEWHERE) for kind in ("qwen2", "llama"))]


PIECES = {"pipeline_parallel_degree": "3", "virtual_pp_degree": "2"}


@pytest.fixture(scope="module", params=KINDS)
def policy(request: pytest.FixtureRequest, world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """The world with a policy of three layers, which two stages have in unequal parts."""
    return with_layers(3, request.param, world, tmp_path_factory)


@pytest.fixture(scope="module", params=KINDS)
def deep(request: pytest.FixtureRequest, world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """The world with a policy of six layers, one for each piece of `PIECES`."""
    return with_layers(6, request.param, world, tmp_path_factory)


def with_layers(n_layers: int, kind: str, world: TinyWorld, folders: pytest.TempPathFactory) -> TinyWorld:
    model_type, _, tied = kind.partition(", ")
    folder = folders.mktemp("policy") / "policy"
    shutil.copytree(world.policy, folder)
    write_policy(folder, model_type=model_type, tie_word_embeddings=bool(tied), num_hidden_layers=n_layers)
    return TinyWorld(world.folder, folder, world.rl_data)


def sft_command(policy: TinyWorld, output: Path, **settings: str) -> list[str]:
    # As many rows as a step has: with several processes PaddleNLP's loader has another order than with one.
    rows = [{"src": f"say {i} " * (1 + i % 3), "tgt": f"{i} " * (1 + i % 5)} for i in range(6 + 4)]
    data = write_jsonl(output.with_suffix(".jsonl"), rows)
    values = {
        "init_from_config": "null",
        "model_name_or_path": str(policy.policy),
        "tokenizer_name_or_path": str(policy.policy),
        "train_datasets": str(data),
        "val_size": "4",
        "evaluation_strategy": "steps",
        "eval_steps": "3",
        "output_dir": str(output),
        "report_to": "none",
        "per_device_train_batch_size": "2",
        "gradient_accumulation_steps": "3",
        "learning_rate": "0.01",
        "max_steps": "3",
        "save_steps": "3",
        "logging_steps": "1",
        **settings,
    }
    overrides = [text for key, value in values.items() for text in (f"--{key}", value)]
    return [str(SCRIPTS / "run_sft.py"), str(CONFIGS / "sft_tiny_argument.yaml"), *overrides]


def assert_same_weights(output: Path, plain: Path) -> None:
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (output, plain))
    assert ours.keys() == theirs.keys()
    for key, weight in theirs.items():
        np.testing.assert_allclose(ours[key], weight, atol=1e-4, err_msg=key)


def assert_alike(output: Path, plain: Path, loss: float = 1e-6) -> None:
    """Losses and weights are those of the other run, and the files are as plain."""
    for ours, theirs in zip(metrics_of(output), metrics_of(plain), strict=True):
        for name in ("loss", "eval_loss", "kl", "entropy", "logprob_gap_mean"):
            assert (name in ours) == (name in theirs)
            if name in ours:
                assert ours[name] == pytest.approx(theirs[name], abs=loss), name
    assert_same_weights(output, plain)
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (output, plain))
    assert ours == theirs


def test_supervised_training_is_that_of_one_process(policy: TinyWorld, tmp_path: Path) -> None:
    run(one_rank(sft_command(policy, tmp_path / "plain")))
    for name, (n_ranks, settings) in LAYOUTS.items():
        run(on_ranks(n_ranks, sft_command(policy, tmp_path / name, **settings), tmp_path / f"logs of {name}"))
        assert_alike(tmp_path / name, tmp_path / "plain")


def test_supervised_training_in_pieces_is_that_of_one_process(deep: TinyWorld, tmp_path: Path) -> None:
    """With fewer than two micro-batches a stage Paddle does all forward passes first, with more it interleaves."""
    run(one_rank(sft_command(deep, tmp_path / "plain")))
    settings = {
        "forward first": {"recompute": "true"},
        "interleaved": {"per_device_train_batch_size": "1", "gradient_accumulation_steps": "6"},
    }
    for name, values in settings.items():
        run(on_ranks(3, sft_command(deep, tmp_path / name, **PIECES, **values), tmp_path / f"logs of {name}"))
        assert_alike(tmp_path / name, tmp_path / "plain")


def test_rl_in_pieces_is_that_of_one_process(deep: TinyWorld, tmp_path: Path) -> None:
    settings = {**SCORED, "per_device_train_batch_size": "2"}
    run(one_rank(entry_command(deep, tmp_path / "plain", **settings)))
    run(on_ranks(3, entry_command(deep, tmp_path / "out", **settings, **PIECES), tmp_path / "logs"))
    assert_alike(tmp_path / "out", tmp_path / "plain")


@pytest.mark.parametrize(
    "settings", [pytest.param({}, marks=ELSEWHERE), {"sharding": "stage1"}], ids=["data ranks", "sharded"]
)
def test_data_ranks_beside_stages_are_those_of_one_process(
    world: TinyWorld, tmp_path: Path, settings: dict[str, str]
) -> None:
    run(one_rank(sft_command(world, tmp_path / "plain")))
    rows = {"per_device_train_batch_size": "1"}  # of each data rank
    run(on_ranks(4, sft_command(world, tmp_path / "out", **STAGES, **rows, **settings), tmp_path / "logs"))
    assert_alike(tmp_path / "out", tmp_path / "plain")


def test_rl_is_that_of_one_process(policy: TinyWorld, tmp_path: Path) -> None:
    run(one_rank(entry_command(policy, tmp_path / "plain", **SCORED)))
    for n_ranks, settings in LAYOUTS.values():
        output = tmp_path / str(n_ranks)
        run(on_ranks(n_ranks, entry_command(policy, output, **SCORED, **settings), tmp_path / f"logs of {n_ranks}"))
        assert_alike(output, tmp_path / "plain")


@pytest.mark.parametrize(
    "resumed", [(2, STAGES), (1, {"unified_checkpoint": "true"})], ids=["in stages", "in one process"]
)
def test_training_goes_on_where_stages_stopped(
    policy: TinyWorld, tmp_path: Path, resumed: tuple[int, dict[str, str]]
) -> None:
    assert_goes_on(policy, tmp_path, (2, STAGES), resumed)


@pytest.mark.scale
@pytest.mark.parametrize(
    "resumed", [(3, PIECES), (2, STAGES), (1, {})], ids=["in pieces", "in stages", "in one process"]
)
def test_training_goes_on_where_pieces_stopped(
    deep: TinyWorld, tmp_path: Path, resumed: tuple[int, dict[str, str]]
) -> None:
    unified = {"unified_checkpoint": "true"}
    assert_goes_on(deep, tmp_path, (3, {**PIECES, **unified}), (resumed[0], {**resumed[1], **unified}))


def assert_goes_on(
    policy: TinyWorld, tmp_path: Path, stopped: tuple[int, dict[str, str]], resumed: tuple[int, dict[str, str]]
) -> None:
    """A run from the other's first checkpoint on has the same weights in the end."""
    saves = {"save_steps": "1", "save_total_limit": "3", "max_steps": "3"}
    n_ranks, settings = stopped
    run(on_ranks(n_ranks, sft_command(policy, tmp_path / "whole", **saves, **settings), tmp_path / "logs"))
    before = tmp_path / "whole" / "checkpoint-1"
    shutil.copytree(before, tmp_path / "out" / before.name)
    n_ranks, settings = resumed
    run(on_ranks(n_ranks, sft_command(policy, tmp_path / "out", **saves, **settings), tmp_path / "logs again"))
    assert [line["step"] for line in metrics_of(tmp_path / "out") if "loss" in line] == [2, 3]
    assert_same_weights(tmp_path / "out", tmp_path / "whole")
    weights = load_policy(str(before)).state_dict()  # a checkpoint's folder is a model's, as in other layouts
    assert weights.keys() >= load_file(tmp_path / "out" / "model.safetensors").keys()


def test_rl_goes_on_where_stages_stopped(world: TinyWorld, tmp_path: Path) -> None:
    settings = {**STAGES, "save_steps": "1", "save_total_limit": "3", **held_out_settings(world, tmp_path)}
    run(on_ranks(2, entry_command(world, tmp_path / "whole", **settings), tmp_path / "logs"))
    shutil.copytree(tmp_path / "whole" / "checkpoint-1", tmp_path / "out" / "checkpoint-1")
    run(on_ranks(2, entry_command(world, tmp_path / "out", **settings), tmp_path / "logs again"))
    assert_same_weights(tmp_path / "out", tmp_path / "whole")
