"""The CUDA kernels: equal to the C++ kernels, thread by thread on the CPU and on a GPU where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import grrm_csrc
from grrm_csrc.compiling import find_compiler

HERE, CSRC = Path(__file__).parent, Path(grrm_csrc.__file__).parent
FLAGS = ["-O1", "-std=c++17"]
COROUTINES = ["-U_FORTIFY_SOURCE"]  # its longjmp takes a change of stack for an error; Ubuntu's compilers define it
CARDS = ("80", "90")  # A100 and its kin, H100 and its kin
TIMEOUT_S = 300


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def needed(tool: str | None, what: str) -> str:
    if tool is None:
        pytest.skip(f"there is no {what} here")
    return tool


def cpp_compiler() -> list[str]:
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C++ compiler here")
    return found


def twins_of(folder: Path) -> Path:
    """The C++ kernels, compiled, for a program to be linked with."""
    made = run(*cpp_compiler(), *FLAGS, "-fopenmp", "-c", CSRC / "bindings/c_api.cpp", "-o", folder / "c_api.o")
    assert made.returncode == 0, made.stderr[-2000:]
    return folder / "c_api.o"


@pytest.mark.slow
def test_cuda_kernels_compute_what_the_cpu_kernels_do(tmp_path):
    program, source = tmp_path / "twins", HERE / "cuda_twins.cpp"
    made = run(*cpp_compiler(), *FLAGS, *COROUTINES, "-fopenmp", source, twins_of(tmp_path), "-o", program)
    if made.returncode != 0 and "ucontext.h" in made.stderr:
        pytest.skip("there are no coroutines here to run threads of a GPU as")
    assert made.returncode == 0, made.stderr[-2000:]
    done = run(program)
    assert (done.returncode, done.stdout.strip()) == (0, "equal"), done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS)
def test_cuda_kernels_compile_without_a_warning_or_a_spilled_register(tmp_path, card):
    nvcc = needed(shutil.which("nvcc"), "nvcc")
    flags = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "--Werror", "all-warnings", "-Xptxas", "-v"]
    made = run(nvcc, *flags, f"-arch=sm_{card}", CSRC / "cuda/c_api.cu", "-o", tmp_path / "kernels.so")
    assert made.returncode == 0, made.stderr[-2000:]
    spills = {line.partition(",")[2].strip() for line in made.stderr.splitlines() if "spill" in line}
    assert spills == {"0 bytes spill stores, 0 bytes spill loads"}


@pytest.mark.slow
def test_cuda_kernels_compute_on_a_gpu_what_the_cpu_kernels_do(tmp_path):
    nvcc = needed(shutil.which("nvcc"), "nvcc")
    if run(needed(shutil.which("nvidia-smi"), "GPU"), "-L").returncode != 0:
        pytest.skip("there is no GPU here")
    program, twins, compiled = tmp_path / "twins", twins_of(tmp_path), tmp_path / "twins.o"
    for command in (
        [*FLAGS, "-arch=native", "-x", "cu", "-c", HERE / "cuda_twins.cpp", "-o", compiled],
        ["-Xcompiler", "-fopenmp", compiled, twins, "-o", program],
    ):
        made = run(nvcc, *command)
        assert made.returncode == 0, made.stderr[-2000:]
    done = run(program)
    assert (done.returncode, done.stdout.strip()) == (0, "equal"), done.stdout[-2000:] + done.stderr[-2000:]
