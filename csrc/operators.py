"""Definition of the library of Paddle's operators around the kernels (bindings/operators.cpp)."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

from grrm_csrc.compiling import Library, find_compiler
from grrm_csrc.openmp import paddle_libraries

_CARDS = ("80", "90")  # A100 and its kin, H100 and its kin; later ones translate the code of the last
_VERSION = "version/__init__.py"


@lru_cache(maxsize=1)
def operator_library(kernels: Path) -> Library | None:
    """Return the operators' library for this paddle, with the CUDA kernels if it runs on GPUs and there is an nvcc.

    They call the library `kernels`, by its soname: it has to be loaded first. None without paddle or its headers.
    """
    wheel = _wheel()
    if wheel is None or not (wheel / "include/paddle/extension.h").exists():
        return None
    with_cuda = _nvcc(wheel) is not None
    return Library(
        "operators",
        main=("bindings/operators.cpp", *(("cuda/c_api.cu",) if with_cuda else ())),
        sources=("bindings/operators.cpp", "bindings/training.h", "cuda/*"),
        flags=(
            *(("-DGRRM_WITH_CUDA", "-DPADDLE_WITH_CUDA") if with_cuda else ()),
            "-DPADDLE_WITH_CUSTOM_KERNEL",
            "-DPADDLE_NO_PYTHON",  # Python's own headers are not everywhere
            "-isystem",
            str(wheel / "include"),
            "-isystem",
            str(wheel / "include/third_party"),
        ),
        # By folder and name: nvcc splits the path of a library where it has a blank.
        linked=("-L", str(wheel / "base"), "-l:libpaddle.so", "-L", str(kernels.parent), f"-l:{kernels.name}"),
        belongs_to=(wheel / _VERSION).read_text(encoding="utf-8"),
    )


def operator_compiler() -> list[str] | None:
    """The C++ compiler, behind nvcc where the CUDA kernels are compiled along; None without one."""
    compiler: list[str] | None = find_compiler()
    wheel = _wheel()
    nvcc = None if wheel is None else _nvcc(wheel)
    if compiler is None or nvcc is None:
        return compiler
    cards = [f"-gencode=arch=compute_{card},code=sm_{card}" for card in _CARDS]
    later = f"-gencode=arch=compute_{_CARDS[-1]},code=compute_{_CARDS[-1]}"
    # Paddle's headers need CUDA's in a form that only nvcc's own language has.
    return [nvcc, "-x", "cu", "--forward-unknown-to-host-compiler", "-ccbin", compiler[0], *cards, later]


def _wheel() -> Path | None:
    libraries = paddle_libraries()
    return None if libraries is None else libraries.parent


def _nvcc(wheel: Path) -> str | None:
    """nvcc for a paddle that runs on NVIDIA's GPUs."""
    lines = (wheel / _VERSION).read_text(encoding="utf-8").splitlines()
    on_cpu = any(line.split("=")[0].strip() == "cuda_version" and "False" in line for line in lines)
    return None if on_cpu else shutil.which("nvcc")
