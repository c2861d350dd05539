"""The comparison of token scores: forms take turns, and are told relative to TRL's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def logprob(import_benchmark):
    return import_benchmark("logprob")


def test_forms_take_turns_and_are_told_relative_to_trl(logprob, tmp_path, monkeypatch, capsys):
    turns = []

    def measured(form, peer, n_tokens, vocab, width):
        turns.append((form, vocab))
        assert (peer, n_tokens) == ("python", 100)
        return {"cpu_s": 3.0 if form == "trl" else 1.5 + len(turns) % 2, "peak_mb": 800.0 if form == "trl" else 100.0}

    monkeypatch.setattr(logprob, "measure_once", measured)
    rows = logprob.measure(2, 100, ["one-pass"], "python")["rows"]
    first = next(iter(logprob.SIZES.values()))[0]
    assert turns[:4] == [("one-pass", first), ("trl", first)] * 2
    ours, theirs = rows[:2]
    assert (ours["engine"], ours["cpu_s"], ours["peak_mb_relative_to_trl"]) == ("ours-one-pass", 2.5, 0.125)
    assert (theirs["engine"], theirs["cpu_s_relative_to_trl"]) == ("trl", 1.0)


@pytest.mark.parametrize("wrong", [["--forms", "half"], ["--tokens", "0"]])
def test_what_cannot_be_measured_is_refused(logprob, wrong, capsys):
    with pytest.raises(SystemExit):
        logprob.main(wrong)
    assert "--forms some of one-pass,twice,whole,stock" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["one-pass", "stock"])
def test_a_form_is_measured_in_a_process_of_its_own(logprob, form):
    command = [sys.executable, logprob.__file__, "--one", form, "70", "300", "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert {*json.loads(done.stdout.splitlines()[-1])} == {"cpu_s", "peak_mb"}
