#!/bin/sh
# Looks up known vulnerabilities of what is installed in .venv; `make audit` runs it. pip-audit has a place of its own,
# so that it neither limits nor joins what it looks at.
set -eu
cd "$(dirname "$0")/.."
home=build/audit

fail() {
    echo "error: $*" >&2
    exit 2
}

[ -x "$home/bin/pip-audit" ] || {
    .venv/bin/python -m venv "$home"
    "$home/bin/python" -m pip install --disable-pip-version-check -q 'pip-audit>=2.10,<3' ||
        fail "pip-audit could not be installed: check the connection to the registry, then run make audit again."
}
.venv/bin/python -m pip list --disable-pip-version-check --exclude-editable --format=freeze |
    grep -v '^grrm' >"$home/installed.txt"
if "$home/bin/pip-audit" --strict --no-deps --disable-pip --progress-spinner off -r "$home/installed.txt" \
    >"$home/found.txt" 2>"$home/said.txt"; then
    echo "No known vulnerability in $(wc -l <"$home/installed.txt") packages."
    exit 0
fi
if [ -s "$home/found.txt" ]; then
    cat "$home/found.txt"
    fail "vulnerabilities are known, see above: raise these versions in constraints.txt, or say there why they stay."
fi
tail -n 1 "$home/said.txt" >&2
fail "nothing was looked up, as the vulnerability database of PyPI was not reached: run make audit where there is a network."
