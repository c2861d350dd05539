"""Step indices name every micro-batch of every update of every rollout, in training order, for ever."""

from __future__ import annotations

from itertools import islice

import numpy as np

from grrm.rl.batch import make_batch
from grrm.rl.experience import Row
from grrm.rl.trainer import StepIndex, StepIndexLoader


def test_step_indices_come_in_training_order_and_do_not_end():
    indices = list(islice(StepIndexLoader(updates_per_rollout=2, micro_batches_per_update=3), 13))
    first = [StepIndex(0, update, micro) for update in range(2) for micro in range(3)]
    assert indices[:7] == [*first, StepIndex(1, 0, 0)]
    assert indices[12] == StepIndex(2, 0, 0)


def test_every_pass_starts_anew_as_a_resumed_run_needs():
    loader = StepIndexLoader(1, 2)
    assert list(islice(loader, 5)) == list(islice(loader, 5))


# --- training rows to the tensors of one forward and backward pass


PAD = 9


def row(n: int, old: bool = True) -> Row:
    steps = np.arange(1, n + 1)
    return Row([1, 2], list(range(10, 10 + n)), steps / 2, np.ones(n), -steps, -2 * steps if old else None, None)


def test_batch_is_zero_beyond_each_response():
    batch = make_batch([row(1), row(3)], PAD)
    assert batch.advantages_RT.tolist() == [[0.5, 0, 0], [0.5, 1, 1.5]]
    assert batch.mask_RT.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.engine_logprobs_RT.tolist() == [[-1, 0, 0], [-1, -2, -3]]
    assert batch.old_logprobs_RT.tolist() == [[-2, 0, 0], [-2, -4, -6]]
    assert batch.ref_logprobs_RT is None


def test_log_probabilities_that_some_rows_lack_are_left_out():
    assert make_batch([row(1), row(2, old=False)], PAD).old_logprobs_RT is None
