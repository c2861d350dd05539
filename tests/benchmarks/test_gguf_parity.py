"""The comparison of `grrm model` with transformers: our own side of it, against formulas in NumPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.command_line import python
from support.gguf_files import forward, write_tiny_gguf

from grrm.models.gguf_import import import_gguf
from grrm.models.tokenizer import encoder, load_tokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEXTS = ("the tin", "in an inn")
COMPARE = """
import json, sys
from pathlib import Path
import gguf_parity
theirs = json.load(sys.stdin)
gguf_parity.TEXTS = tuple(theirs["decoded"])
model, *folders = map(Path, sys.argv[1:])
print(json.dumps([gguf_parity.compare(model, theirs, folder) for folder in folders]))
"""


def compared(model, theirs, *folders):
    """In a process of its own: layers for the CPU, which other tests install, have no float64."""
    done = python("-c", COMPARE, model, *folders, stdin=json.dumps(theirs), cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_differs_is_counted_and_the_largest_difference_is_found(tmp_path):
    weights = write_tiny_gguf(tmp_path / "tiny.gguf")
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    tokenizer = load_tokenizer(tmp_path / "model")
    ids = [encoder(tokenizer)(text) for text in TEXTS]
    folders = tmp_path / "same", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
        for number, row in enumerate(ids):
            for dtype in ("float32", "float64"):
                np.save(folder / f"{number}-{dtype}.npy", forward(weights, row).astype(dtype))
    turn = "<|im_start|>user\n{}<|im_end|>\n".format
    theirs = {
        "ids": ids,
        "decoded": list(TEXTS),
        "turns": [turn("the tin"), ""],
        "weights": 3,
        "same_weights": 2,
    }
    np.save(folders[1] / "1-float64.npy", forward(weights, ids[1]) + 0.5)
    result, other = compared(tmp_path / "model", theirs, *folders)
    assert (result["texts"], result["same_tokens"], result["same_turns"], result["same_decoded"]) == (2, 2, 1, 2)
    assert result["positions"] == result["same_likeliest"] == 2 * sum(map(len, ids))
    assert result["largest_gap_float64"] < 1e-6 < result["largest_gap_float32"] < 1e-3
    assert other["largest_gap_float64"] == pytest.approx(0.5, abs=1e-4)
