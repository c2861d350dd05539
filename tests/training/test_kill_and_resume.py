"""A run that is killed at a bad moment and started again ends, to the last bit, where one that was let alone does."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, killed_at, metrics_of, one_rank, rollouts_of, run, two_ranks

from grrm.training.checkpoints import last_complete_checkpoint

LAYOUTS = {
    "one": {},
    "data2": {"balance_batch": "true"},
    "sharding2": {"sharding": "stage1", "sharding_parallel_degree": "2"},
    "tensor2": {"tensor_parallel_degree": "2"},  # which saves unified checkpoints by itself
}
MOMENTS = {
    "before a save": ("os.mkdir", "checkpoint-10$"),
    "amid a save": ("open", "checkpoint-10/optimizer"),
    "at the end of a save": ("os.rename", "checkpoint-10/grrm_state.json$"),
}
STEPS = {
    "max_steps": "10",
    "save_steps": "5",
    "save_total_limit": "1",
    "warmup_steps": "0",
    "learning_rate": "0.001",
}


def launched(layout: str, command: list[str], logs: Path) -> list[str]:
    return one_rank(command) if layout == "one" else two_ranks(command, logs)


def train(world: TinyWorld, layout: str, output: Path, **settings: str) -> None:
    settings = {**STEPS, **LAYOUTS[layout], **settings}
    run(launched(layout, entry_command(world, output, **settings), output.with_name("logs")))


def train_until(event: tuple[str, str], world: TinyWorld, layout: str, output: Path, **settings: str) -> None:
    command = killed_at(*event, entry_command(world, output, **{**STEPS, **LAYOUTS[layout], **settings}))
    done = run(launched(layout, command, output.with_name("logs")), expect=None)
    assert done.returncode != 0
    assert last_complete_checkpoint(output) == output / "checkpoint-5"


@pytest.fixture(scope="module")
def whole(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of runs that were let alone, by layout; made when first asked for."""
    folder = tmp_path_factory.mktemp("whole")

    class Made(dict[str, Path]):
        def __missing__(self, layout: str) -> Path:
            train(world, layout, folder / layout)
            self[layout] = folder / layout
            return self[layout]

    return Made()


def weights(output: Path) -> dict[str, np.ndarray]:
    return load_file(output / "model.safetensors")


def losses(output: Path) -> list[float]:
    return [line["loss"] for line in metrics_of(output)]


SLOW = [("one", "amid a save")]


@pytest.mark.parametrize(
    ("layout", "moment"),
    [
        pytest.param(layout, moment, marks=pytest.mark.slow if (layout, moment) in SLOW else pytest.mark.scale)
        for layout in LAYOUTS
        for moment in MOMENTS
    ],
)
def test_a_killed_run_ends_as_one_that_was_let_alone(
    layout: str, moment: str, world: TinyWorld, whole: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    train_until(MOMENTS[moment], world, layout, output)
    train(world, layout, output)
    expected, found = weights(whole[layout]), weights(output)
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert rollouts_of(output) == rollouts_of(whole[layout])
    assert losses(output) == losses(whole[layout])
    assert [path.name for path in output.glob("checkpoint-*")] == ["checkpoint-10"]


@pytest.mark.scale
@pytest.mark.parametrize(("saved", "resumed"), itertools.permutations(LAYOUTS, 2))
def test_a_unified_checkpoint_is_resumed_from_in_another_layout(
    saved: str, resumed: str, world: TinyWorld, whole: dict[str, Path], tmp_path: Path
) -> None:
    output, unified = tmp_path / "out", {"unified_checkpoint": "true"}
    train_until(MOMENTS["amid a save"], world, saved, output, **unified)
    train(world, resumed, output, **unified)
    assert rollouts_of(output) == rollouts_of(whole["one"])
    np.testing.assert_allclose(losses(output), losses(whole["one"]), atol=1e-5)
    expected, found = weights(whole["one"]), weights(output)
    assert max(np.abs(expected[name] - found[name]).max() for name in expected) < 1e-5


@pytest.mark.scale
def test_a_checkpoint_in_parts_is_refused_by_another_layout_before_a_model_is_loaded(
    world: TinyWorld, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    train_until(MOMENTS["before a save"], world, "sharding2", output)
    command = entry_command(world, output, **STEPS, actor_model_name_or_path=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_bytes((world.policy / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_bytes((world.policy / "tokenizer_config.json").read_bytes())
    done = run(one_rank(command), expect=2)
    assert "saved in parts by 2 processes (sharding 2), and this run is laid out over 1 process" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_ranks_resume_with_dynamic_sampling_where_the_prompts_stood(world: TinyWorld, tmp_path: Path) -> None:
    steps = {"save_steps": "1", "dynamic_sampling": "true", "global_gen_batch_size": "2", "max_gen_batches": "20"}
    run(two_ranks(entry_command(world, tmp_path / "whole", max_steps="2", **steps), tmp_path / "logs"))
    run(two_ranks(entry_command(world, tmp_path / "parts", max_steps="1", **steps), tmp_path / "logs"))
    run(two_ranks(entry_command(world, tmp_path / "parts", max_steps="2", **steps), tmp_path / "logs"))

    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert rollouts_of(tmp_path / "whole") == rollouts_of(tmp_path / "parts")
