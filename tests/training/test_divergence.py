"""A run that diverges ends with one sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.rl_processes import TinyWorld, entry_command, one_rank, run

from grrm.errors import UserError
from grrm.training.divergence import StopsAtDivergence


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_loss_that_is_no_number_names_the_step_and_the_remedy(loss):
    trainer = StopsAtDivergence()
    trainer.state = SimpleNamespace(global_step=4)
    with pytest.raises(
        UserError, match=r"^the loss is (nan|inf) in step 5: training has diverged, lower learning_rate"
    ):
        trainer._check_loss_valid(loss)
    trainer._check_loss_valid(-0.5)


@pytest.mark.slow
def test_diverged_policy_stops_the_run_without_a_traceback(world: TinyWorld, tmp_path):
    done = run(one_rank(entry_command(world, tmp_path, learning_rate="1e30")), expect=2)
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
