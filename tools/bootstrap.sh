#!/bin/sh
# Installs paddle-grrm and its tested dependencies into .venv; `make` runs it before everything else.
#
# .venv/.installed records what was installed, where and with which Python; while that matches, nothing is done. It is
# written last, so the next run resumes an interrupted installation.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "error: $*" >&2
    exit 2
}

version_of() { # major.minor, empty when the interpreter does not start
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

is_supported() {
    case $1 in 3.10 | 3.11 | 3.12) true ;; *) false ;; esac
}

fingerprint() { # pyproject.toml counts up to the settings of the tools
    sed '/^\[tool/,$d' pyproject.toml | cat - setup.py constraints.txt tools/bootstrap.sh | cksum
    pwd -P
    version_of .venv/bin/python
}

choose_python() { # sets $python: the one named by PYTHON, else the first on PATH that will do
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 ||
            fail "PYTHON=$PYTHON was not found: name an installed Python 3.10, 3.11 or 3.12."
        python=$PYTHON version=$(version_of "$PYTHON")
        [ -n "$version" ] || fail "PYTHON=$PYTHON does not run Python code: name a Python 3.10, 3.11 or 3.12."
        is_supported "$version" || fail "PYTHON=$PYTHON is Python $version: name a Python 3.10, 3.11 or 3.12."
        return
    fi
    for python in python3 python3.12 python3.11 python3.10 python; do
        is_supported "$(version_of "$python")" && return
    done
    fail "no Python 3.10, 3.11 or 3.12 is on PATH: install one, or name one with make PYTHON=/path/to/python3.12."
}

create_venv() {
    choose_python
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot create virtual environments: add its venv module (Debian: apt-get install python3-venv)."
    free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -ge 2500000 ] ||
        fail "$(pwd -P) has $((free_kb / 1000)) MB of free disk, the installation needs 2500 MB: make room."
    rm -rf .venv
    "$python" -m venv .venv || fail "$python could not create .venv: its message is above."
}

if [ -n "${PYTHON:-}" ]; then
    choose_python
    [ "$(version_of "$python")" = "$(version_of .venv/bin/python)" ] || rm -rf .venv
fi
[ -f .venv/.installed ] && [ "$(fingerprint)" = "$(cat .venv/.installed)" ] && exit 0
# Its scripts, `activate` among them, name the folder they were made in.
[ ! -f .venv/.installed ] || grep -qxF "$(pwd -P)" .venv/.installed || rm -rf .venv
is_supported "$(version_of .venv/bin/python)" && .venv/bin/python -m pip --version >/dev/null 2>&1 || create_venv

before=$(fingerprint)
echo "Installing paddle-grrm and its pinned dependencies into .venv (1.8 GB, a few minutes) ..."
[ -t 1 ] && quiet= || quiet=-q # on a terminal pip shows its progress
# shellcheck disable=SC2086
.venv/bin/python -m pip install --disable-pip-version-check $quiet -c constraints.txt -e '.[cpu,dev]' ||
    fail "pip could not install the packages, see above: check the connection to the registry, then run make again."
details=$(.venv/bin/python -m pip check --disable-pip-version-check 2>&1) || {
    echo "$details" >&2
    fail "the installed packages contradict one another, see above: remove .venv and run make again."
}
# A clean `pip check` does not mean that they import together.
.venv/bin/python -W ignore -c '
import paddle, paddlenlp.trainer, paddlenlp.transformers, visualdl
import grrm, grrm_reward_server' ||
    fail "the installed packages do not import together, see above: remove .venv and run make again."
echo "$before" >.venv/.installing
mv .venv/.installing .venv/.installed
