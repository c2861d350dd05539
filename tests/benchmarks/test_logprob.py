"""The comparison of token scores: forms take turns, and are told relative to TRL's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_forms_take_turns_and_are_told_relative_to_the_others(logprob, monkeypatch):
    turns = []

    def measured(form, peer, n_tokens, vocab, width):
        turns.append((form, vocab))
        assert (peer, n_tokens) == ("python", 100)
        return {"trl": {"seconds": 4.0, "peak_mb": 200.0}, "torch": {"seconds": 3.0, "peak_mb": 800.0}}.get(
            form, {"seconds": 1.0 + (len(turns) > 3), "peak_mb": 100.0}
        )

    monkeypatch.setattr(logprob, "measure_once", measured)
    rows = logprob.measure(2, 100, ["chunked"], "python")["rows"]
    first = next(iter(logprob.SIZES.values()))[0]
    assert turns[:6] == [("chunked", first), ("trl", first), ("torch", first)] * 2
    ours, trl, _ = rows[:3]
    assert (ours["engine"], ours["seconds"], ours["seconds_relative_to_torch"]) == ("ours-chunked", 1.5, 0.5)
    assert (ours["peak_mb_relative_to_trl"], ours["peak_mb_relative_to_torch"]) == (0.5, 0.125)
    assert (trl["engine"], trl["seconds_relative_to_trl"]) == ("trl", 1.0)


def test_results_to_compare_with_are_not_overwritten_without_the_others(logprob, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    monkeypatch.setattr(logprob, "RESULT", tmp_path / "logprob.json")
    monkeypatch.setattr(logprob, "measure", lambda *_: pytest.fail("was measured"))
    logprob.main(["--out", str(tmp_path / "logprob.json")])
    assert "run `bash benchmarks/peers/set_up.sh` first" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("form", ["chunked", "chunked-bf16", "twice"])
def test_a_form_is_measured_in_a_process_of_its_own(logprob, form):
    command = [sys.executable, logprob.__file__, "--one", form, "70", "300", "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert {*json.loads(done.stdout.splitlines()[-1].removeprefix("@@"))} == {"seconds", "peak_mb"}
