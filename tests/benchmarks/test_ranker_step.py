"""The comparison of rankers in training: turns, ratios of a round, and losses that have to agree."""

from __future__ import annotations

import json
import sys

import pytest

ECHO = """
import json, sys
name, losses, turns = sys.argv[1], [2.0], 0
slow = 2.0 if name == "torch" else 1.0
print("@@ready", flush=True)
for line in sys.stdin:
    steps, turns = json.loads(line)["steps"], turns + 1
    losses += [1.5] * steps
    answer = {"seconds": slow * steps * turns, "cpu_seconds": 2 * slow * slow * steps, "losses": losses}
    print("@@" + json.dumps(answer), flush=True)
"""


@pytest.fixture
def asked(ranker_step, tmp_path, monkeypatch):
    """Both sides answer at once; what they were started with."""
    real, started = ranker_step.Worker, []

    def worker(command, threads):
        name = "torch" if ranker_step.PEER in command else "ours"
        started.append((name, threads, command[-1]))
        return real([sys.executable, "-c", ECHO, name])

    monkeypatch.setattr(ranker_step, "Worker", worker)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").touch()
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    return started


def test_both_take_turns_and_ratios_are_those_of_a_round(ranker_step, asked, tmp_path, capsys):
    out = tmp_path / "result.json"
    ranker_step.main(["--rounds", "3", "--steps", "4", "--threads", "2", "--compare", "group", "--out", str(out)])
    assert [(name, threads) for name, threads, _ in asked] == [("ours", "2"), ("torch", "2")]
    assert asked[0][2] == "group"
    ours, torch = json.loads(out.read_text())["rows"]
    assert (ours["engine"], torch["engine"], ours["compare"], ours["threads"]) == ("ours", "torch", "group", 2)
    # The turn that warms up counts in nothing; the three behind it take 2, 3 and 4 seconds a step.
    assert (ours["fastest"], ours["seconds_per_step"], ours["slowest"]) == (2.0, 3.0, 4.0)
    assert (torch["seconds_per_step"], torch["relative_to_torch"]) == (6.0, 1.0)
    assert (ours["relative_to_torch"], ours["cpu_relative_to_torch"]) == (0.5, 0.25)
    assert "0.50 of torch's (0.25 in CPU seconds)" in capsys.readouterr().out


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
