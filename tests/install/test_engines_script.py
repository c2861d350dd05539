"""tests/engines/install.sh with a stand-in for Python, which reaches no index and installs nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "engines/install.sh"
FAKE_PYTHON = r"""#!/bin/sh
[ "$1" = -m ] || { echo "$*" >>"$LOG"; exit 1; }
mkdir -p "$3/bin"
cp "$0" "$3/bin/pip"
cp "$0" "$3/bin/python"
"""


def test_without_the_index_of_torch_nothing_is_asked_for_package_by_package(tmp_path):
    script, python = tmp_path / "tests/engines/install.sh", tmp_path / "python"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", script], env={"PATH": "/usr/bin:/bin", "PYTHON": str(python), "LOG": str(tmp_path / "log")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: vLLM needs PyTorch's packages, and https://download.pytorch.org/whl/cpu does")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "log").read_text().startswith("-c")
    assert (tmp_path / "log").read_text().count("\n") == 1
