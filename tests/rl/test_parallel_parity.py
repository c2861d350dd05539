"""Data, sharding, tensor and sequence parallelism and recomputation change how a step is computed, not what."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, metrics_of, on_ranks, one_rank, run
from support.tiny_policy import write_policy

pytestmark = pytest.mark.slow

TENSOR = {"tensor_parallel_degree": "2"}
VARIANTS = {
    "data parallel": (2, {}),
    "data parallel, recomputed": (2, {"recompute": "true"}),
    "sharded": (2, {"sharding": "stage1"}),
    "recomputed": (1, {"recompute": "true"}),
    "tensor parallel, recomputed": (2, {**TENSOR, "recompute": "true"}),
    "tensor parallel, sampling together": (2, {**TENSOR, "rollout_tensor_parallel_degree": "2"}),
    "sequence parallel": (2, {**TENSOR, "sequence_parallel": "true"}),
    "tensor parallel, sharded, balanced": (4, {**TENSOR, "sharding": "stage1", "balance_batch": "true"}),
}
# With a tied policy, of which tests/scale has all layouts; `make test-scale` runs all with an untied one.
DIAGONAL = ("sharded", "tensor parallel, recomputed", "tensor parallel, sampling together", "sequence parallel")
CASES = [(True, name) for name in DIAGONAL]
CASES += [pytest.param(False, name, marks=pytest.mark.scale) for name in VARIANTS]


@pytest.fixture(scope="module")
def policy(request: pytest.FixtureRequest, world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """The world with a policy whose LM head is, or is not, its embedding."""
    folder = tmp_path_factory.mktemp("policy") / "policy"
    shutil.copytree(world.policy, folder)
    write_policy(folder, tie_word_embeddings=request.param)
    return TinyWorld(world.folder, folder, world.rl_data)


@pytest.fixture(scope="module")
def plain(policy: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, nothing recomputed."""
    output = tmp_path_factory.mktemp("plain") / "out"
    run(one_rank(entry_command(policy, output)))
    return output


@pytest.mark.parametrize(("policy", "name"), CASES, indirect=["policy"])
def test_losses_and_weights_are_those_of_one_process(policy: TinyWorld, plain: Path, tmp_path: Path, name: str) -> None:
    n_ranks, settings = VARIANTS[name]
    command = entry_command(policy, tmp_path / "out", **settings)
    run(on_ranks(n_ranks, command, tmp_path / "logs"))
    for ours, theirs in zip(metrics_of(tmp_path / "out"), metrics_of(plain), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", plain))
    assert ours.keys() == theirs.keys()
    for key, weight in theirs.items():
        np.testing.assert_allclose(ours[key], weight, atol=1e-4, err_msg=key)
