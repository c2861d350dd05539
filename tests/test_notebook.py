"""The notebook: its cells run from first to last, with fewer steps."""

from __future__ import annotations

import json
import sys

import pytest
from support.rl_processes import ROOT, run

pytestmark = pytest.mark.slow


def test_cells_of_the_notebook_run_in_order(tmp_path):
    notebook = json.loads((ROOT / "docs/notebooks/judge_and_train.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code = "\n".join(cells)
    steps = "SFT_STEPS, GRPO_STEPS = 150, 10"
    assert steps in code
    code = code.replace(steps, "SFT_STEPS, GRPO_STEPS = 4, 2").replace("runs/notebook", str(tmp_path))
    done = run([sys.executable, "-c", f"{code}\nprint(len(rewards))"])
    assert done.stdout.splitlines()[-1] == "2"
