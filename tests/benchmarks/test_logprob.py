"""The comparison of token scores: a process for each form, and no result without the others."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


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
    assert {*json.loads(done.stdout.splitlines()[-1])} == {"seconds", "peak_mb"}
