"""The comparison of rankers in training: losses that have to agree, and our own trainer."""

from __future__ import annotations

import json
import sys

import pytest


@pytest.mark.parametrize("theirs", [[2.01, 1.5], [2.0, 1.6], [float("nan"), 1.5], [2.0]])
def test_two_rankers_that_differ_are_not_compared(ranker_step, theirs):
    ranker_step.check_losses([2.0, 1.5, 1.0], [2.00001, 1.501, 0.5])
    with pytest.raises((SystemExit, ValueError)):
        ranker_step.check_losses([2.0, 1.5], theirs)


def test_groups_are_those_that_are_described(ranker_step):
    groups = ranker_step.random_groups(240)
    lengths = [[len(response) for response in group["responses"]] for group in groups]
    assert {len(one) for one in lengths} == {8}
    assert (min(map(min, lengths)), max(map(max, lengths))) == (6, 25)
    assert all(max(one) - min(one) <= 6 for one in lengths)
    assert {len(group["prompt"]) for group in groups} == {*range(30, 41)}
    assert all(len({*map(tuple, group["responses"])}) == 8 for group in groups)


@pytest.mark.slow
def test_our_trainer_takes_the_steps_it_is_asked_for(ranker_step, tmp_path):
    worker = ranker_step.Worker([sys.executable, ranker_step.__file__, "--worker", tmp_path, "group"], "1")
    first, second = (worker.ask({"steps": steps}) for steps in (1, 2))
    worker.close()
    assert (len(first["losses"]), len(second["losses"])) == (2, 2)  # the first step was taken before it was asked
    assert all(0 < loss < 20 for loss in first["losses"] + second["losses"])
    assert 0 < first["seconds"] < second["seconds"]
    task = json.loads((tmp_path / "task.json").read_text())
    assert len(task["groups"]) == 240
    assert json.loads((tmp_path / "model/reward_model.json").read_text())["compare"] == "group"
