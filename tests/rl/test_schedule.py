"""Tickets name every micro-batch of every update of every rollout, in training order, for ever."""

from itertools import islice

from grrm.rl.schedule import Ticket, TicketLoader


def test_tickets_come_in_training_order_and_do_not_end():
    tickets = list(islice(TicketLoader(updates_per_rollout=2, micro_batches_per_update=3), 13))
    assert tickets[:7] == [
        Ticket(0, 0, 0), Ticket(0, 0, 1), Ticket(0, 0, 2), Ticket(0, 1, 0), Ticket(0, 1, 1), Ticket(0, 1, 2),
        Ticket(1, 0, 0),
    ]  # fmt: skip
    assert tickets[12] == Ticket(2, 0, 0)


def test_every_pass_starts_anew_as_a_resumed_run_needs():
    loader = TicketLoader(1, 2)
    assert list(islice(loader, 5)) == list(islice(loader, 5))
