"""Every layout of processes, with rows balanced among them or not, recomputed or not, trains what one process trains.

`make test-scale` runs this and prints what it found. It leaves the largest differences of each layout in
runs/layouts.json, which is benchmarks/results/layouts.json for the table of docs/train.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import ROOT, TinyWorld, entry_command, metrics_of, on_ranks, rollouts_of, run

from grrm.data.atomic import atomic_path

pytestmark = pytest.mark.scale

# Two steps a rollout, and a loss that is far from zero and moves weights far: differences would show.
SETTINGS = {
    "global_batch_size": "8",
    "global_mini_batch_size": "4",
    "max_steps": "4",
    "save_steps": "4",
    "learning_rate": "0.02",
    "kl_loss_coeff": "0.1",
    "sft_coeff": "0.1",
    "entropy_coeff": "0.1",
}
TENSOR = {"tensor_parallel_degree": "2"}
STAGES = {"pipeline_parallel_degree": "2"}
FOUR_ROWS = {"per_device_train_batch_size": "4"}  # all that one of four data ranks has of an update
LAYOUTS = {
    "one process": (1, {}),
    "data 2": (2, {}),
    "sharding 2": (2, {"sharding": "stage1"}),
    "sharding 4": (4, {"sharding": "stage1", **FOUR_ROWS}),
    "data 2 x sharding 2": (4, {"sharding": "stage1", "sharding_parallel_degree": "2", **FOUR_ROWS}),
    "tensor 2": (2, TENSOR),
    "tensor 2, sampling together": (2, {**TENSOR, "rollout_tensor_parallel_degree": "2"}),
    "tensor 2, sequence parallel": (2, {**TENSOR, "sequence_parallel": "true"}),
    "tensor 2 x sharding 2": (4, {**TENSOR, "sharding": "stage1"}),
    "tensor 2, sequence x sharding 2": (4, {**TENSOR, "sequence_parallel": "true", "sharding": "stage1"}),
    "pipeline 2": (2, STAGES),
    "pipeline 2 x data 2": (4, STAGES),
    "pipeline 2 x tensor 2": (4, {**STAGES, **TENSOR}),
}
LAUNCHES = 20
ON = ("false", "true")


@pytest.fixture(scope="module")
def reference(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, nothing balanced or recomputed."""
    output = tmp_path_factory.mktemp("reference") / "out"
    run(on_ranks(1, entry_command(world, output, balance_batch="false", **SETTINGS), output / "logs"))
    return output


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines that are printed when all layouts have been run, and written with the largest of their differences."""
    lines = ["| layout | balanced | recomputed | groups | loss | weights | seconds |", "|---|---|---|---|---|---|---|"]
    yield lines
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, sep="\n")
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    rows = []
    for layout in dict.fromkeys(cells[0] for cells in found):
        groups, losses, weights = zip(*(cells[3:6] for cells in found if cells[0] == layout), strict=True)
        largest = {"loss": max(map(float, losses)), "weights": max(map(float, weights))}
        rows.append(
            {"layout": layout, "processes": LAYOUTS[layout][0], "same_groups": {*groups} == {"equal"}, **largest}
        )
    with atomic_path(ROOT / "runs/layouts.json") as temporary:
        temporary.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("recompute", ON)
@pytest.mark.parametrize("balance", ON)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_losses_and_weights_are_those_of_one_process(
    world: TinyWorld, reference: Path, table: list[str], tmp_path: Path, layout: str, balance: str, recompute: str
) -> None:
    n_ranks, settings = LAYOUTS[layout]
    changes = {**SETTINGS, **settings, "balance_batch": balance, "recompute": recompute}
    command, started = entry_command(world, tmp_path / "out", **changes), time.perf_counter()
    run(on_ranks(n_ranks, command, tmp_path / "logs"))
    seconds = time.perf_counter() - started
    same_groups = rollouts_of(tmp_path / "out") == rollouts_of(reference)  # with rewards and advantages
    pairs = list(zip(metrics_of(tmp_path / "out"), metrics_of(reference), strict=True))
    loss = max(abs(ours["loss"] - theirs["loss"]) for ours, theirs in pairs)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", reference))
    assert ours.keys() == theirs.keys()
    weights = max(float(np.abs(ours[name] - theirs[name]).max()) for name in theirs)
    words = ["equal" if same_groups else "differ", f"{loss:.0e}", f"{weights:.0e}", f"{seconds:.0f}"]
    table.append(
        f"| {' | '.join([layout, *('yes' if on == 'true' else 'no' for on in (balance, recompute)), *words])} |"
    )
    assert same_groups
    assert loss <= 1e-5
    assert weights <= 1e-4


@pytest.mark.timeout(3600)
def test_four_processes_start_and_end_time_after_time(world: TinyWorld, tmp_path: Path) -> None:
    n_ranks, settings = LAYOUTS["tensor 2 x sharding 2"]
    changes = {**settings, "max_steps": "1", "save_strategy": "no"}
    for number in range(LAUNCHES):
        output = tmp_path / str(number)
        run(on_ranks(n_ranks, entry_command(world, output / "out", **changes), output / "logs"), timeout_s=600)
