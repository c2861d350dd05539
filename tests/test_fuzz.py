"""`make fuzz` goes over every target, and tells a fault with what it takes to see it again."""

from __future__ import annotations

import json
import subprocess
import sys

import fuzz
import pytest
from support.rl_processes import ROOT


@pytest.mark.slow
def test_a_while_of_fuzzing_finds_nothing():
    command = [sys.executable, str(ROOT / "tests/fuzz.py"), "--minutes", "0.1", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["faults"] == 0
    assert set(told["cases"]) == {"parsers", "guard", "app", "front"}
    assert set(told["texts"]) == set(told["cases"])
    assert told["texts"]["guard"] > 10 * told["cases"]["guard"] > 0
    assert min(told["texts"].values()) > 0


def test_a_fault_is_told_with_the_number_of_its_case_and_drawn_again_from_it():
    drawn = []

    def target(rng, number):
        drawn.append(fuzz.drawn_text(rng))
        fuzz.expect(number != 3, "three")
        return 2

    n_cases, n_texts, faults = fuzz.fuzz({"one": target}, 0.01, seed=5)
    assert [(name, number) for name, number, _ in faults] == [("one", 3)]
    assert "Broken: three" in faults[0][2]
    again, drawn = drawn, []
    assert n_texts["one"] == 2 * (n_cases["one"] - 1)
    assert n_cases["one"] == len(again) > 4
    fuzz.fuzz({"one": target}, 0.01, seed=5)
    assert drawn[:4] == again[:4]
