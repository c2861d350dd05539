"""Runs with a critic: what they leave, that they resume to the last bit, and that any layout trains the same critic."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.rl_processes import (
    TinyWorld,
    entry_command,
    held_out_settings,
    killed_at,
    metrics_of,
    on_ranks,
    one_rank,
    rollouts_of,
    run,
    train_rl,
    two_ranks,
)

from grrm.errors import UserError
from grrm.models.reward_models import load_reward_model
from grrm.training.checkpoints import last_complete_checkpoint

FILES = ("model.safetensors", "critic/model.safetensors", "critic/value_head.safetensors")
SETTINGS = {
    "max_steps": "4",
    "save_steps": "2",
    "global_mini_batch_size": "2",
    "per_device_train_batch_size": "4",
    "learning_rate": "0.02",
    "warmup_steps": "0",
    "critic_learning_rate": "0.01",
    "critic_lr_scheduler_type": "cosine",
    "critic_weight_decay": "0.01",
    "kl_coeff": "0.05",
    "adam_epsilon": "1e-6",  # a gradient of next to nothing is not made as long as the others
}
LAYOUTS = {
    "data": (2, {}),
    "data, recomputed": (2, {"recompute": "true"}),
    "data, by tokens": (2, {"max_tokens_per_micro_batch": "240"}),
    "sharded": (2, {"sharding": "stage1"}),
    "tensor": (2, {"tensor_parallel_degree": "2"}),
    "tensor, sequence": (2, {"tensor_parallel_degree": "2", "sequence_parallel": "true"}),
    "tensor, sharded": (4, {"tensor_parallel_degree": "2", "sharding": "stage1", "critic_recompute": "true"}),
}
ELSEWHERE = pytest.mark.scale  # what `make test-scale` runs of these matrices
DIAGONAL = ("data, by tokens", "sharded", "tensor, sequence")


def ppo(world: TinyWorld, output: Path, **settings: str) -> list[str]:
    return entry_command(world, output, "ppo_grrm_tiny_argument.yaml", **{**SETTINGS, **settings})


def weights_of(output: Path) -> dict[str, np.ndarray]:
    return {f"{file}:{name}": one for file in FILES for name, one in load_file(output / file).items()}


def assert_same(left: Path, right: Path, atol: float = 0.0) -> None:
    ours, theirs = weights_of(left), weights_of(right)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        np.testing.assert_allclose(ours[name], weight, atol=atol, rtol=0, err_msg=name)


@pytest.fixture(scope="module")
def plain(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    output = tmp_path_factory.mktemp("plain") / "out"
    run(one_rank(ppo(world, output)))
    return output


def test_policy_and_critic_are_both_trained_and_logged(world: TinyWorld, plain: Path) -> None:
    start = load_file(world.policy / "model.safetensors")
    for name, weight in weights_of(plain).items():
        assert np.isfinite(weight).all(), name
        file, _, key = name.partition(":")
        if "layers" in name:
            assert (weight != start[key]).any(), name
        if file.endswith("value_head.safetensors"):
            assert weight.any(), name
    lines = metrics_of(plain)
    assert [line["critic_learning_rate"] for line in lines] == pytest.approx(
        [0.01 * (1 + np.cos(np.pi * step / 4)) / 2 for step in (1, 2, 3, 4)], abs=1e-6
    )
    assert lines[0]["value_mean"] == 0.0  # the head is zero at first
    assert all(line["value_loss"] > 0 for line in lines)
    assert lines[0]["value_target_mean"] == pytest.approx(lines[1]["value_target_mean"])  # of the same rollout
    assert "explained_variance" in lines[-1]


def test_a_critic_serves_as_a_reward_model_and_as_the_critic_of_another_run(
    world: TinyWorld, plain: Path, tmp_path: Path
) -> None:
    model = load_reward_model(plain / "critic")
    assert model.kind == "pairwise"
    settings = {"critic_model_name_or_path": str(plain / "critic"), "max_steps": "1", "save_strategy": "no"}
    train_rl(ppo(world, tmp_path / "out", **settings, global_mini_batch_size="-1"))
    assert metrics_of(tmp_path / "out")[0]["value_mean"] != 0.0


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["checkpoint-4/critic/checkpoint-4/optimizer", "checkpoint-4/optimizer"])
def test_a_killed_run_goes_on_with_both_models_and_both_optimizers(
    world: TinyWorld, plain: Path, tmp_path: Path, moment: str
) -> None:
    command = ppo(world, tmp_path / "out")
    run(one_rank(killed_at("open", moment, command)), expect=None)
    assert last_complete_checkpoint(tmp_path / "out") == tmp_path / "out/checkpoint-2"
    run(one_rank(command))
    assert_same(tmp_path / "out", plain)
    assert rollouts_of(tmp_path / "out") == rollouts_of(plain)
    assert [line["value_loss"] for line in metrics_of(tmp_path / "out")] == [
        line["value_loss"] for line in metrics_of(plain)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({}, marks=ELSEWHERE),
        {"sharding": "stage1"},
        pytest.param({"tensor_parallel_degree": "2"}, marks=ELSEWHERE),
    ],
    ids=str,
)
def test_two_ranks_go_on_as_if_nothing_had_happened(world: TinyWorld, tmp_path: Path, layout: dict[str, str]) -> None:
    run(two_ranks(ppo(world, tmp_path / "whole", **layout), tmp_path / "logs"))
    command = ppo(world, tmp_path / "parts", **layout)
    run(two_ranks(killed_at("os.mkdir", "checkpoint-4$", command), tmp_path / "logs"), expect=None)
    assert last_complete_checkpoint(tmp_path / "parts") == tmp_path / "parts/checkpoint-2"
    run(two_ranks(command, tmp_path / "logs"))
    assert_same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in DIAGONAL else pytest.param(name, marks=ELSEWHERE) for name in LAYOUTS]
)
def test_any_layout_trains_the_policy_and_the_critic_of_one_process(
    world: TinyWorld, plain: Path, tmp_path: Path, name: str
) -> None:
    n_ranks, settings = LAYOUTS[name]
    run(on_ranks(n_ranks, ppo(world, tmp_path / "out", **settings), tmp_path / "logs"))
    assert_same(tmp_path / "out", plain, atol=2e-4)
    for ours, theirs in zip(metrics_of(tmp_path / "out"), metrics_of(plain), strict=True):
        for key in ("loss", "value_loss", "value_mean", "value_clipfrac", "value_target_mean"):
            assert ours[key] == pytest.approx(theirs[key], abs=1e-5), key


@pytest.mark.slow
@pytest.mark.parametrize(("n_ranks", "layout"), [(1, {}), (2, {"sharding": "stage1"})], ids=["one", "sharded"])
def test_in_the_first_steps_of_a_critic_warmup_only_the_critic_is_trained(
    world: TinyWorld, tmp_path: Path, n_ranks: int, layout: dict[str, str]
) -> None:
    decay = {"weight_decay": "0.1", "max_steps": "2"}  # of weights that an optimizer's step would shrink
    run(on_ranks(n_ranks, ppo(world, tmp_path / "out", critic_warmup="2", **decay, **layout), tmp_path / "logs"))
    trained, start = weights_of(tmp_path / "out"), load_file(world.policy / "model.safetensors")
    for name, weight in start.items():
        np.testing.assert_array_equal(trained[f"model.safetensors:{name}"], weight)
        assert (trained[f"critic/model.safetensors:{name}"] != weight).any() or "layers" not in name


def test_a_checkpoint_without_a_critic_is_told_in_one_sentence(world: TinyWorld, plain: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(plain, output)
    shutil.rmtree(output / "checkpoint-4/critic")
    with pytest.raises(UserError, match="has no critic: set overwrite_output_dir to start over"):
        train_rl(ppo(world, output, max_steps="6"))


JUDGE = '''
from grrm.gqm.groups import Status, Verdict


def likes_german(groups):
    """As many points for any text, by the languages of the prompt."""
    scores = [8.0 if "de" in (group.task.src_lang, group.task.trg_lang) else 2.0 for group in groups]
    sizes = [len(group.candidates) for group in groups]
    return [Verdict((Status.SCORED,) * size, (score,) * size) for score, size in zip(scores, sizes)]
'''


@pytest.mark.slow
def test_a_checkpoint_whose_critic_is_in_other_parts_is_told_in_one_sentence(world: TinyWorld, tmp_path: Path) -> None:
    tensor = {"tensor_parallel_degree": "2", "max_steps": "2"}  # whose policy is in a unified checkpoint
    run(two_ranks(ppo(world, tmp_path / "out", **tensor), tmp_path / "logs"))
    done = run(one_rank(ppo(world, tmp_path / "out", unified_checkpoint="true")), expect=2)
    assert (
        "has its critic in the parts of 2 processes (tensor 2), and this run is laid out over 1 process" in done.stderr
    )


def test_a_finished_run_leaves_the_same_models_when_it_is_started_again(plain: Path, world: TinyWorld, tmp_path: Path):
    shutil.copytree(plain, tmp_path / "out")
    for file in FILES:
        (tmp_path / "out" / file).unlink()
    for optimizer in (tmp_path / "out/checkpoint-4").rglob("optimizer*"):
        optimizer.unlink()  # as ignore_save_lr_and_optim leaves it
    train_rl(ppo(world, tmp_path / "out"))
    assert_same(tmp_path / "out", plain)


@pytest.mark.slow
def test_the_critic_beside_the_best_policy_is_that_of_the_same_step(world: TinyWorld, tmp_path: Path) -> None:
    settings = {"max_steps": "2", "save_steps": "1", "global_mini_batch_size": "-1", "learning_rate": "0"}
    best = {"load_best_model_at_end": "true", "metric_for_best_model": "reward"}  # equal rewards: the first
    command = ppo(world, tmp_path / "out", **held_out_settings(world, tmp_path, True), **settings, **best)
    for _ in range(2):  # the second finds all trained and saves it again
        run(one_rank(command))
        state = json.loads((tmp_path / "out/checkpoint-2/trainer_state.json").read_text())
        assert state["best_model_checkpoint"].endswith("checkpoint-1")
        stored = paddle.load(str(tmp_path / "out/checkpoint-1/critic/checkpoint-1/model_state.pdparams"))
        head = load_file(tmp_path / "out/critic/value_head.safetensors")["v_head.summary.weight"]
        np.testing.assert_array_equal(head, stored["head.weight"].numpy().T)
        (tmp_path / "out/model.safetensors").unlink()


@pytest.mark.slow
def test_a_critic_learns_what_the_prompt_tells_of_the_reward(world: TinyWorld, tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(JUDGE)
    settings = {
        "max_steps": "80",
        "save_strategy": "no",
        "reward_judge": f"{tmp_path}/judge.py:likes_german",
        "extractor_type": "none",
        "learning_rate": "1e-5",
        "critic_learning_rate": "0.003",
        "per_device_train_batch_size": "16",
        "critic_lr_scheduler_type": "constant",
        "global_mini_batch_size": "-1",
        "global_batch_size": "16",
        "gae_lambda": "1",
        "kl_coeff": "0",
    }
    run(one_rank(ppo(world, tmp_path / "out", **settings)))
    explained = [line["explained_variance"] for line in metrics_of(tmp_path / "out")]
    assert abs(explained[0]) < 0.01
    assert np.mean(explained[-5:]) > 0.7
