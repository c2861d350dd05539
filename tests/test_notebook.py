"""The notebook: its cells run from first to last, with fewer steps, and find the argument file of a wheel as well."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.rl_processes import ROOT, run

import grrm


def code_of_the_notebook() -> str:
    notebook = json.loads((ROOT / "docs/notebooks/judge_and_train.ipynb").read_text(encoding="utf-8"))
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


@pytest.mark.slow
def test_cells_of_the_notebook_run_in_order(tmp_path):
    code, steps = code_of_the_notebook(), "SFT_STEPS, GRPO_STEPS = 150, 10"
    assert steps in code
    code = code.replace(steps, "SFT_STEPS, GRPO_STEPS = 4, 2").replace("runs/notebook", str(tmp_path))
    done = run([sys.executable, "-c", f"{code}\nprint(len(rewards))"])
    assert done.stdout.splitlines()[-1] == "2"


def test_the_argument_file_is_found_in_a_wheel(tmp_path, monkeypatch):
    recipe = tmp_path / "grrm/recipes/qwen/sft_tiny_argument.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.touch()
    monkeypatch.setattr(grrm, "__file__", str(tmp_path / "grrm/__init__.py"))
    starts = ("import grrm", "from grrm.cli", "recipe = ")
    lines = [line for line in code_of_the_notebook().splitlines() if line.startswith(starts)]
    names = {"Path": Path}
    exec("\n".join(lines), names)
    assert names["recipe"] == recipe
