"""Micro-batches by a budget of tokens: which rows share one, and a run that comes out as it does by rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, run, two_ranks

from grrm.config import RLConfig, prepare
from grrm.errors import UserErrors
from grrm.models.packing import lay_out
from grrm.rl.experience_maker import micro_batches_of

BUDGET = {"max_tokens_per_micro_batch": "120"}


def row(prompt: int, response: int) -> SimpleNamespace:
    return SimpleNamespace(prompt_ids=[prompt] * 10, token_ids=[1] * response)


def plan(tokens: int, n: int) -> SimpleNamespace:
    return SimpleNamespace(micro_batch_tokens=tokens, micro_batch_rows=2, micro_batches_per_update=n)


def test_a_micro_batch_takes_as_many_rows_as_its_budget_has_room_for_once_laid_out():
    rows = [row(prompt, length) for prompt, length in [(1, 5), (1, 5), (1, 9), (2, 30), (2, 2), (3, 1)]]
    for pack in (0, 40):
        cut = micro_batches_of(rows, plan(40, len(rows)), pack)
        assert [one for batch in cut for one in batch] == rows
        assert [bool(batch) for batch in cut] == sorted(bool(batch) for batch in cut), "empty ones come first"
        filled = [batch for batch in cut if batch]
        sizes = [lay_out([r.prompt_ids for r in b], [r.token_ids for r in b], 0, pack) for b in filled]
        assert all(batch.input_ids.size <= 40 for batch in sizes)
        assert len(filled) < len(rows)
    shared = [batch for batch in micro_batches_of(rows, plan(40, 6), 40) if batch]
    apart = [batch for batch in micro_batches_of(rows, plan(40, 6), 0) if batch]
    assert len(shared) < len(apart), "a prompt that is computed once leaves room for rows"


def test_without_a_budget_rows_are_counted():
    rows = [row(1, 1)] * 6
    assert [len(batch) for batch in micro_batches_of(rows, plan(0, 3), 0)] == [2, 2, 2]


def test_a_budget_that_cannot_work_is_refused(world: TinyWorld, tmp_path: Path):
    changes = {"max_tokens_per_micro_batch": "50", "tensor_parallel_degree": "2", "sequence_parallel": "true"}
    command = entry_command(world, tmp_path, **changes)
    with pytest.raises(UserErrors) as caught:
        prepare(RLConfig, command[1], command[2:])
    assert "has no room for a row" in str(caught.value)
    assert "which sequence_parallel counts on" in str(caught.value)


@pytest.fixture(scope="module")
def by_rows(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("rows") / "out"
    run(one_rank(entry_command(world, output)))
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"balance_batch": "true"}, {"tensor_parallel_degree": "2"}], ids=["data parallel", "tensor parallel"]
)
def test_losses_and_weights_are_those_of_a_run_that_counts_rows(
    world: TinyWorld, by_rows: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    run(two_ranks(entry_command(world, tmp_path / "out", **BUDGET, **settings), tmp_path / "logs"))
    for ours, theirs in zip(metrics_of(tmp_path / "out"), metrics_of(by_rows), strict=True):
        for name in ("loss", "entropy", "logprob_gap_mean", "reward_mean"):
            if name in theirs:
                assert ours[name] == pytest.approx(theirs[name], abs=1e-5), name
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", by_rows))
    for key, weight in theirs.items():
        np.testing.assert_allclose(ours[key], weight, atol=1e-4, err_msg=key)
    states = [
        json.loads((folder / "checkpoint-3/grrm_state.json").read_text()) for folder in (tmp_path / "out", by_rows)
    ]
    assert [state["topology"]["rows_per_step"] for state in states] == [16, 16], "one can go on where the other ended"
