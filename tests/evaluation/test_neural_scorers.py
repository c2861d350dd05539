"""Scorers in environments of their own: real environments, with small stand-ins for the packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grrm.errors import UserError
from grrm.evaluation.neural_scorers import NeuralScorer

COMET = """
import sys
print("a line that is no answer")
class Found:
    def __init__(self, scores): self.scores = scores
class Model:
    def predict(self, rows, batch_size, gpus, progress_bar):
        assert "grrm" not in sys.modules and gpus == 0
        return Found([len(row["mt"]) / len(row["ref"]) + len(row["src"]) for row in rows])
def download_model(name): return name
def load_from_checkpoint(name):
    if name == "nowhere": raise OSError("no such model")
    return Model()
"""
TORCH = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
BLEURT = """
class BleurtScorer:
    def __init__(self, model): self.model = model
    def score(self, *, references, candidates, batch_size):
        return [float(r == c) for r, c in zip(references, candidates)]
"""


@pytest.fixture
def environment(tmp_path) -> Path:
    folder = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return folder


def install(environment: Path, **modules: str) -> None:
    (packages,) = environment.glob("lib/python3*/site-packages")
    for name, text in modules.items():
        folder = packages / name.split("_")[0]
        folder.mkdir(exist_ok=True)
        (folder / f"{name.partition('_')[2] or '__init__'}.py").write_text(text)


def test_comet_scores_come_back_in_order(environment):
    install(environment, comet=COMET, torch=TORCH)
    scores = NeuralScorer("comet", environment).score(["a", "bb"], ["xy", None], ["wxyz", "w"])
    assert scores == [1.5, 2.0]


def test_bleurt_scores_come_back_in_order(environment):
    install(environment, bleurt="", bleurt_score=BLEURT)
    scores = NeuralScorer("bleurt", environment, "BLEURT-20").score(["a", "b"], ["x", "y"], ["x", "z"])
    assert scores == [1.0, 0.0]


def test_a_missing_environment_is_one_sentence_with_the_command_that_creates_it(tmp_path):
    with pytest.raises(UserError) as caught:
        NeuralScorer("comet", tmp_path / "no where")
    folder = f"'{tmp_path}/no where'"
    assert f"create it with `python3 -m venv {folder} && {folder}/bin/pip install 'unbabel-comet" in str(caught.value)


def test_an_environment_without_the_package_gets_the_command_too(environment):
    with pytest.raises(UserError, match=r"No module named 'bleurt'.*create it with `python3 -m venv.*bleurt @ git"):
        NeuralScorer("bleurt", environment, "BLEURT-20").score(["a"], ["b"], ["c"])


def test_bleurt_needs_a_model(environment):
    with pytest.raises(UserError, match=r"BLEURT needs a model: give the folder"):
        NeuralScorer("bleurt", environment)


def test_a_failure_is_told_in_the_programs_own_last_words(environment):
    install(environment, comet=COMET, torch=TORCH)
    with pytest.raises(UserError, match=r"COMET failed with model 'nowhere' \(OSError: no such model\)"):
        NeuralScorer("comet", environment, "nowhere").score(["a"], ["b"], ["c"])


@pytest.mark.parametrize("scores", ["[]", "[float('nan')]"])
def test_scores_that_are_missing_or_no_numbers_are_refused(environment, scores):
    found = COMET.replace('[len(row["mt"]) / len(row["ref"]) + len(row["src"]) for row in rows]', scores)
    install(environment, comet=found, torch=TORCH)
    with pytest.raises(UserError, match="gave 0 finite scores for 1 rows"):
        NeuralScorer("comet", environment).score(["a"], ["b"], ["c"])


def test_a_program_that_ends_without_an_answer_is_refused(environment):
    install(environment, comet="import os; os._exit(0)", torch=TORCH)
    with pytest.raises(UserError, match="without an answer that can be read"):
        NeuralScorer("comet", environment).score(["a"], ["b"], ["c"])


def test_nothing_waits_beyond_the_deadline(environment):
    install(environment, comet="import time; time.sleep(60)", torch=TORCH)
    with pytest.raises(UserError, match=r"did not end within 0\.5 s"):
        NeuralScorer("comet", environment, deadline_s=0.5).score(["a"], ["b"], ["c"])
