"""`grrm doctor`: what is installed, what is missing, and what each missing thing disables.

Nothing heavy is imported into this process; whether paddle and paddlenlp import together is tried in a child, because
a clean `pip check` does not show it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TextIO

from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grrm import startup
from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import Kernels, kernels
from grrm_csrc.compiling import find_compiler, obtain
from grrm_csrc.operators import operator_compiler, operator_library

DEFAULT_PORT = 8731
GIB = 2**30
_MARKS = {"ok": "green", "note": "cyan", "warning": "yellow", "broken": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact. `level`: ok, note (an optional thing is missing), warning, broken (the main path cannot run)."""

    level: str
    name: str
    detail: str
    effect: str = ""


# Distribution -> what is lost without it; the second table is optional.
_NEEDED = {
    "paddlepaddle": "training and generation",
    "paddlenlp": "training and generation",
    "numpy": "everything",
    "PyYAML": "argument files",
    "click": "the command line",
    "rich": "the console tables",
    "tqdm": "progress bars",
    "pydantic": "the reward protocol",
    "requests": "the reward client",
    "tenacity": "the reward client's retries",
    "pyarrow": "corpora and rollout dumps",
    "flask": "the reward server",
    "waitress": "the reward server",
    "sacrebleu": "the text-metric judge and evaluation",
    "tokenizers": "the demo's tokenizer",
    "safetensors": "checkpoints",
    "babel": "the demo's corpus",
}
_OPTIONAL = {
    "visualdl": "curves in VisualDL (report_to: visualdl)",
    "tensorboardX": "report_to: tensorboard",
    "wandb": "report_to: wandb",
    "matplotlib": "curves in the demo's report",
    "Jinja2": "the demo's report.html",
    "math-verify": "the answer rule `math`",
    "Django": "the `terms` corpus",
    "polib": "the `terms` corpus",
    "fastdeploy-gpu": "generation by FastDeploy (install it from Paddle's own index, see docs/use.md)",
    "paddlepaddle-gpu": "training on GPUs (install it from Paddle's own index; PyPI stops at 2.6.2)",
    **dict.fromkeys(("pytest", "pytest-cov", "pytest-timeout", "pytest-xdist", "hypothesis"), "make test"),
    **dict.fromkeys(("ruff", "mypy", "import-linter"), "make lint"),
}
# Said of nvcc: what it would be for.
_WITHOUT_NVCC = "disables the CUDA kernels of token scores where paddle runs on a GPU, which has operators of its own"
_SLOWER_TRAINING = "training 1.1 times as long on short rows and up to 3 times on long ones"
_WITHOUT_KERNELS = f"plain Paddle operators are used: generation takes more than twice as long, {_SLOWER_TRAINING}"
_WITHOUT_OPERATORS = f"plain Paddle operators are used: {_SLOWER_TRAINING}"
# Distribution -> (first version that breaks something, what it breaks).
_TRAPS = {
    "numpy": ((2,), "paddlenlp 3.0.0b4 needs NumPy 1.26: pip install 'numpy<2'"),
    "pyarrow": ((21,), "newer pyarrow needs NumPy 2: pip install 'pyarrow<21'"),
    "datasets": ((4,), "newer datasets needs NumPy 2: pip install 'datasets<4'"),
    "protobuf": ((6,), "VisualDL's add_hparams fails: pip install 'protobuf<6'"),
    "aistudio-sdk": ((0, 3), "import paddlenlp fails: pip install 'aistudio-sdk<0.3'"),
    "unbabel-comet": ((0,), "it pins other versions: keep COMET in an environment of its own"),
    "fastdeploy": ((0,), "this is not PaddlePaddle's FastDeploy: pip uninstall fastdeploy"),
}


def examine(
    folder: Path,
    version_of: Callable[[str], str | None] | None = None,
    imports_paddle: Callable[[], str | None] | None = None,
    port: int = DEFAULT_PORT,
) -> list[Finding]:
    """All findings; `folder` is where runs would be written. The callables are replaced in tests."""
    version_of = version_of or installed_version
    return [
        _python(sys.version_info[:3]),
        *_packages(version_of, _pins(constraints_file())),
        *_traps(version_of),
        _import_check(imports_paddle or paddle_import_error),
        *_process(),
        _memory(),
        _disk(folder),
        *_tools(shutil.which),
        _kernels(kernels(), sgemm_address() is not None),
        *_operators(kernels()),
        _port(port),
    ]


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def paddle_import_error(timeout_s: float = 180.0) -> str | None:
    """The last line of the error when paddle and paddlenlp do not import together, None when they do."""
    code = "import paddle, paddlenlp.trainer, paddlenlp.transformers"
    try:
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:g} s"
    if child.returncode == 0:
        return None
    return (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]


def constraints_file() -> Path:
    """constraints.txt of this checkout; it is not part of an installed wheel."""
    return Path(__file__).resolve().parents[5] / "constraints.txt"


def _pins(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = [Requirement(line) for line in lines if line]
    return {
        pin.name.lower(): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }


def _python(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if (3, 10) <= version[:2] <= (3, 12):
        return Finding("ok", "Python", text)
    return Finding(
        "broken", "Python", text, "paddlepaddle 3.3.1 is tested with 3.10 to 3.12: make test PYTHON=python3.12"
    )


def _packages(version_of: Callable[[str], str | None], pins: Mapping[str, str]) -> Iterable[Finding]:
    on_gpu = version_of("paddlepaddle-gpu") is not None
    for name, use in {**_NEEDED, **_OPTIONAL}.items():
        version = version_of(name)
        if version is None:
            if name == "paddlepaddle" and on_gpu:
                continue
            yield Finding("broken" if name in _NEEDED else "note", name, "not installed", f"disables {use}")
        elif version != (pinned := pins.get(name.lower(), version)):
            yield Finding("warning", name, version, f"tested with {pinned}: install with -c constraints.txt")
        else:
            yield Finding("ok", name, version)


def _traps(version_of: Callable[[str], str | None]) -> Iterable[Finding]:
    for name, (first_bad, remedy) in _TRAPS.items():
        version = version_of(name)
        if version is not None and _numbers(version) >= first_bad:
            yield Finding("warning", f"{name} (known trap)", version, remedy)
    if version_of("paddlepaddle") and version_of("paddlepaddle-gpu"):
        remedy = "both write the same files: uninstall both, then install one"
        yield Finding("broken", "paddlepaddle (known trap)", "installed beside paddlepaddle-gpu", remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


def _import_check(imports_paddle: Callable[[], str | None]) -> Finding:
    problem = imports_paddle()
    if problem is None:
        return Finding("ok", "import paddle, paddlenlp", "works")
    return Finding("broken", "import paddle, paddlenlp", problem, "remove .venv and run make again")


def _process() -> Iterable[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    effect = "" if cores >= 2 else "two ranks share one core: the demo takes twice as long"
    yield Finding("ok" if cores >= 2 else "warning", "cores", str(cores), effect)
    flags = startup.cpu_facts()[1]
    effects = {
        "avx2": "matrix kernels are several times slower",
        "avx512f": "kernels for it are not used",
        "avx512_bf16": "bf16: true would make training and generation slower, not faster",
        "avx512_vnni": "rollout_quant_type: weight_only_int8 would make rollouts slower, not faster",
    }
    for flag, effect in effects.items():
        if flag in flags:
            yield Finding("ok", f"CPU {flag}", "yes")
        else:
            yield Finding("warning" if flag == "avx2" else "note", f"CPU {flag}", "no", effect)
    for name, value in startup.describe().items():
        yield Finding("ok", name, value, "run_rl.py and run_sft.py set it themselves" if value == "not set" else "")


def _memory() -> Finding:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if total < 4 * GIB:
        return Finding("warning", "memory", f"{total / GIB:.1f} GiB", "the demo wants 4 GiB: use one rank")
    return Finding("ok", "memory", f"{total / GIB:.1f} GiB")


def _disk(folder: Path) -> Finding:
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    if free < GIB:
        return Finding("warning", "disk", f"{free / GIB:.1f} GiB free at {existing}", "checkpoints need room: 1 GiB")
    return Finding("ok", "disk", f"{free / GIB:.1f} GiB free at {existing}")


def _tools(which: Callable[[str], str | None]) -> Iterable[Finding]:
    compiler = find_compiler(which)
    if compiler:
        yield Finding("ok", "C++ compiler", " ".join(compiler))
    else:
        yield Finding("note", "C++ compiler", "not found", "kernels must be compiled ahead: csrc/setup_ops.py install")
    nvcc = which("nvcc")
    if nvcc:
        yield Finding("ok", "nvcc", nvcc)
    else:
        yield Finding("note", "nvcc", "not found", _WITHOUT_NVCC)


def _kernels(found: Kernels, has_blas: bool) -> Finding:
    if found.library is not None and not has_blas:
        effect = "generation uses plain Paddle operators and takes more than twice as long; training uses the kernels"
        return Finding("note", "CPU kernels", "compiled, but the paddle wheel brings no BLAS that is known", effect)
    if found.library is not None:
        return Finding("ok", "CPU kernels", "compiled")
    return Finding("note", "CPU kernels", found.reason, _WITHOUT_KERNELS)


def _operators(found: Kernels) -> Iterable[Finding]:
    """Whether training can call the kernels; nothing where there are none, or no paddle to call them from."""
    library = None if found.path is None else operator_library(found.path)
    if library is not None:
        compiled, reason = obtain(library, lambda path: path, operator_compiler())
        if compiled is None:
            yield Finding("note", "Paddle operators", reason, _WITHOUT_OPERATORS)
        else:
            yield Finding("ok", "Paddle operators", "compiled, with CUDA" if library.with_cuda else "compiled")


def _port(port: int) -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = "start the reward server with --port and set reward_server to match"
            return Finding("warning", f"port {port}", f"in use ({error.strerror})", remedy)
    return Finding("ok", f"port {port}", "free for the reward server")


def show(findings: Iterable[Finding], out: TextIO) -> None:
    """Print the findings, a table on a terminal and one line each elsewhere, then one line that sums them up."""
    findings = list(findings)
    if out.isatty():
        table = Table(show_header=False, box=None, pad_edge=False)
        for finding in findings:
            level = f"[{_MARKS[finding.level]}]{finding.level}[/]"
            table.add_row(level, escape(finding.name), escape(finding.detail), escape(finding.effect))
        Console(file=out).print(table)
    else:
        for finding in findings:
            effect = f": {finding.effect}" if finding.effect else ""
            print(f"{finding.level:<8} {finding.name} {finding.detail}{effect}", file=out)
    broken = [finding.name for finding in findings if finding.level == "broken"]
    verdict = f"The main path cannot run: mend {', '.join(broken)}." if broken else "The main path can run."
    print(verdict, file=out)
