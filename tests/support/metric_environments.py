"""Environments of learned metrics, with small stand-ins for the packages that real ones have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Scores by length; a translation HANG, DIE, NAN, FEW or ERROR does what it says.
COMET = """
import os, sys, time
print("a line that is no answer")
class Found:
    def __init__(self, scores): self.scores = scores
class Model:
    def predict(self, rows, batch_size, gpus, progress_bar):
        assert "grrm" not in sys.modules and gpus == 0
        texts = [row["mt"] for row in rows]
        if "HANG" in texts: time.sleep(60)
        if "DIE" in texts: os.abort()
        if "ERROR" in texts: raise ValueError("no room on the device")
        if "FEW" in texts: return Found([])
        return Found([float("nan") if text == "NAN" else self.one(row) for text, row in zip(texts, rows)])
    def one(self, row):
        return len(row["mt"]) / len(row["ref"]) + len(row["src"]) if "ref" in row else len(row["mt"]) + len(row["src"])
def download_model(name): return name
def load_from_checkpoint(name):
    if name == "nowhere": raise OSError("no such model")
    return Model()
"""
# The same, but with scores from 0 to 1.
TENTHS = COMET.replace("def one(self, row):", "def one(self, row):\n        return len(row['mt']) / 10\n")
TORCH = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
BLEURT = """
class BleurtScorer:
    def __init__(self, model): self.model = model
    def score(self, *, references, candidates, batch_size):
        return [float(r == c) for r, c in zip(references, candidates)]
"""


def make_environment(folder: Path) -> Path:
    """An environment without packages."""
    environment = folder / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    return environment


def install(environment: Path, **modules: str) -> None:
    """Put modules there; an underscore parts package and module."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    for name, text in modules.items():
        folder = packages / name.split("_")[0]
        folder.mkdir(exist_ok=True)
        (folder / f"{name.partition('_')[2] or '__init__'}.py").write_text(text)
