#!/bin/sh
# Creates .venv beside this checkout and installs paddle-grrm into it with the tested versions. Runs once per change
# of setup.py, pyproject.toml or constraints.txt; `PYTHON=python3.12 make test` picks another interpreter.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || {
    echo "error: '$python' was not found: install Python 3.10, 3.11 or 3.12, or name one with PYTHON=..." >&2
    exit 2
}
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || {
    echo "error: '$python' is $("$python" -V 2>&1), paddle-grrm needs Python 3.10 to 3.12: name one with PYTHON=..." >&2
    exit 2
}
"$python" -c 'import venv, ensurepip' 2>/dev/null || {
    echo "error: '$python' has no venv module: install it (Debian: apt-get install python3-venv)" >&2
    exit 2
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "Installing paddle-grrm and its pinned dependencies into .venv (about 1.8 GB, a minute or more) ..."
.venv/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
.venv/bin/python -c 'import paddle, paddlenlp.trainer, paddlenlp.transformers, visualdl, grrm, grrm_reward_server' 2>/dev/null || {
    echo "error: the installed packages do not import together: remove .venv and run make again; details follow" >&2
    .venv/bin/python -c 'import paddle, paddlenlp.trainer, paddlenlp.transformers, visualdl, grrm, grrm_reward_server'
    exit 2
}
touch .venv/.installed
