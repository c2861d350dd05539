"""Step indices name every micro-batch of every update of every rollout, in training order, for ever."""

from itertools import islice

from grrm.rl.trainer import StepIndex, StepIndexLoader


def test_step_indices_come_in_training_order_and_do_not_end():
    indices = list(islice(StepIndexLoader(updates_per_rollout=2, micro_batches_per_update=3), 13))
    first = [StepIndex(0, update, micro) for update in range(2) for micro in range(3)]
    assert indices[:7] == [*first, StepIndex(1, 0, 0)]
    assert indices[12] == StepIndex(2, 0, 0)


def test_every_pass_starts_anew_as_a_resumed_run_needs():
    loader = StepIndexLoader(1, 2)
    assert list(islice(loader, 5)) == list(islice(loader, 5))
