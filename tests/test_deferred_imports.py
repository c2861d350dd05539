"""What PaddleNLP imports and nothing here uses stays out of the process, and comes when somebody uses it after all."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BEGIN = "from grrm.startup import configure_process; configure_process(); import sys, grrm.rl.trainer\n"
HEAVY = ("sklearn", "scipy.stats", "pandas", "fastapi")


def said_by(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-1]


def test_training_starts_without_pipelines_statistics_tables_and_web_frameworks():
    assert said_by(f"print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_what_was_deferred_works_once_it_is_used():
    code = """
import datasets, paddlenlp, paddlenlp.metrics
from paddlenlp.metrics import ChunkEvaluator
rows = datasets.Dataset.from_dict({"a": [1, 2]})
assert not isinstance([], datasets.Dataset) and isinstance(rows, datasets.Dataset)
evaluator = ChunkEvaluator(["B-X", "I-X", "O"])
from grrm.rl.trainer import Trainer
from importlib import import_module
print(len(rows), type(evaluator).__module__, callable(paddlenlp.Taskflow), import_module("datasets").__version__ > "")
"""
    assert said_by(code) == "2 paddlenlp.metrics.chunk True True"


ADVICE = """
import paddle, inspect
import paddle.distributed.parallel as parallel
parallel._print_modified_flags([1])
print(inspect.getsource(parallel).startswith("#"), paddle.base.__spec__.loader is paddle.base.__loader__)
"""


def test_paddle_gives_no_advice_about_settings_that_are_on_purpose():
    early = "from grrm.startup import configure_process; configure_process()\n"
    told = {}
    for begin in ("", early):
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        done = subprocess.run(
            [sys.executable, "-c", begin + ADVICE], capture_output=True, text=True, timeout=600, env=environment
        )
        assert done.stdout.strip().splitlines()[-1:] == ["True True"], done.stderr
        told[begin] = done.stderr
    assert "OMP_NUM_THREADS" in told[""]
    assert "FLAGS" in told[""]
    assert told[early] == ""


def test_library_that_was_imported_before_is_left_as_it_is():
    code = "import datasets, subprocess\nprint(type(datasets).__name__)"
    early = f"import datasets\n{BEGIN}{code}"
    result = subprocess.run([sys.executable, "-c", early], capture_output=True, text=True, timeout=600)
    assert result.stdout.strip().splitlines()[-1] == "module", result.stderr
