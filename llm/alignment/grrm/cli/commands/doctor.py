"""`grrm doctor`: what is installed, what is missing, and what each missing thing disables.

Nothing heavy is imported into this process; whether paddle and paddlenlp import together is tried in a child, because
a clean `pip check` does not show it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grrm import startup
from grrm.cli.commands.doctor_packages import Finding, constraints_file, packages, pins, traps
from grrm.entry import GPU_EXTRA
from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import Kernels, kernels
from grrm_csrc.compiling import find_compiler, obtain
from grrm_csrc.operators import operator_compiler, operator_library

DEFAULT_PORT = 8731
IMPORT_S = 180.0
GIB = 2**30
_MARKS = {"ok": "green", "note": "cyan", "warning": "yellow", "broken": "red"}


# Said of nvcc: what it would be for.
_WITHOUT_NVCC = "disables the CUDA kernels of token scores where paddle runs on a GPU, which has operators of its own"
_SLOWER_TRAINING = "training 1.1 times as long on short rows and up to 3 times on long ones"
_WITHOUT_KERNELS = f"plain Paddle operators are used: generation takes more than twice as long, {_SLOWER_TRAINING}"
_REINSTALL = f"in a clone remove .venv and run make again; else install `paddle-grrm[cpu]`, on a GPU {GPU_EXTRA}"
_WITHOUT_OPERATORS = f"plain Paddle operators are used: {_SLOWER_TRAINING}"


def examine(folder: Path, tell: Callable[[str], object]) -> list[Finding]:
    """All findings; `folder` is where runs would be written, and `tell` gets a line before each group of checks."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "Python and packages": lambda: [
            _python(sys.version_info[:3]),
            *packages(installed_version, pins(constraints_file())),
            *traps(installed_version),
        ],
        "import of paddle and paddlenlp: up to 3 minutes": lambda: [_import_check(paddle_import_error())],
        "processor, memory, disk and tools": lambda: [*_process(), _memory(), _disk(folder), *_tools()],
        "kernels, compiled where there are none yet: half a minute": lambda: [
            _kernels(kernels(), sgemm_address() is not None),
            *_operators(kernels()),
        ],
        f"port {DEFAULT_PORT}": lambda: [_port(DEFAULT_PORT)],
    }
    findings: list[Finding] = []
    for number, (what, check) in enumerate(checks.items(), 1):
        tell(f"[{number}/{len(checks)}] {what}")
        findings += check()
    return findings


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def paddle_import_error() -> str | None:
    """The error where paddle and paddlenlp do not import together, None where they do."""
    code = "import paddle, paddlenlp.trainer, paddlenlp.transformers"
    try:
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {IMPORT_S:g} s"
    return _ending(child) or None


def _python(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if (3, 10) <= version[:2] <= (3, 12):
        return Finding("ok", "Python", text)
    return Finding(
        "broken", "Python", text, "paddlepaddle 3.3.1 is tested with 3.10 to 3.12: make test PYTHON=python3.12"
    )


def _import_check(problem: str | None) -> Finding:
    if problem is None:
        return Finding("ok", "import paddle, paddlenlp", "works")
    return Finding("broken", "import paddle, paddlenlp", problem, _REINSTALL)


def _process() -> Iterable[Finding]:
    cores = startup.usable_cores()
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
    limits = [int(limit) for limit in startup.container_limit("memory.max") if limit != "max"]
    total = min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *limits])
    if total < 4 * GIB:
        return Finding("warning", "memory", f"{total / GIB:.1f} GiB", "the demo wants 4 GiB: use one rank")
    return Finding("ok", "memory", f"{total / GIB:.1f} GiB")


def _disk(folder: Path) -> Finding:
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    if free < GIB:
        return Finding("warning", "disk", f"{free / GIB:.1f} GiB free at {existing}", "checkpoints need room: 1 GiB")
    return Finding("ok", "disk", f"{free / GIB:.1f} GiB free at {existing}")


def _tools() -> Iterable[Finding]:
    compiler = find_compiler(shutil.which)
    if compiler:
        yield Finding("ok", "C++ compiler", " ".join(compiler))
    else:
        yield Finding(
            "note", "C++ compiler", "not found", "kernels must be compiled ahead: python -m grrm_csrc.setup_ops install"
        )
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Finding("ok", "nvcc", nvcc)
    else:
        yield Finding("note", "nvcc", "not found", _WITHOUT_NVCC)


def _kernels(kernels: Kernels, has_blas: bool) -> Finding:
    if kernels.library is not None and not has_blas:
        effect = "generation uses plain Paddle operators and takes more than twice as long; training uses the kernels"
        return Finding("note", "CPU kernels", "compiled, but the paddle wheel brings no BLAS that is known", effect)
    if kernels.library is not None:
        return Finding("ok", "CPU kernels", "compiled")
    return Finding("note", "CPU kernels", kernels.reason, _WITHOUT_KERNELS)


def _operators(kernels: Kernels) -> Iterable[Finding]:
    """Tell if training can call the kernels; nothing where there are none, or no paddle to call them from."""
    library = None if kernels.path is None else operator_library(kernels.path)
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
            remedy = "unless that is your reward server: start it with --port, and set reward_server to match"
            return Finding("warning", f"port {port}", f"in use ({error.strerror})", remedy)
    return Finding("ok", f"port {port}", "free for the reward server")


def show(findings: Sequence[Finding], what: str) -> None:
    """Print the findings, a table on a terminal and one line each elsewhere, then one line that sums up `what`."""
    if sys.stdout.isatty():
        table = Table(show_header=False, box=None, pad_edge=False)
        for finding in findings:
            level = f"[{_MARKS[finding.level]}]{finding.level}[/]"
            table.add_row(level, escape(finding.name), escape(finding.detail), escape(finding.effect))
        Console().print(table)
    else:
        for finding in findings:
            effect = f": {finding.effect}" if finding.effect else ""
            print(f"{finding.level:<8} {finding.name} {finding.detail}{effect}")
    broken = [finding.name for finding in findings if finding.level == "broken"]
    print(f"{what} cannot run: mend {', '.join(broken)}." if broken else f"{what} can run.")


CHECK = (sys.executable, "-W", "ignore", "-m", "grrm.cli.gpu_check")
CHECK_S = 300.0
_NO_GPU = "the checks below ran on the CPU, which tries them and not a GPU: install the extra gpu, see docs/install.md"


def examine_gpu() -> list[Finding]:
    """The device and a finding for each check. A child that crashes or hangs is told with the check it was at."""
    try:
        child = subprocess.run(CHECK, capture_output=True, text=True, timeout=CHECK_S, check=False)
        printed, ended = child.stdout, _ending(child)
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"no answer within {CHECK_S:g} s"
    return list(_findings(_lines(printed), ended))


def _ending(child: subprocess.CompletedProcess[str]) -> str:
    if child.returncode == 0:
        return ""
    if child.returncode < 0:
        return f"the process died of signal {-child.returncode}"
    return (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]


def _lines(printed: str) -> Iterator[dict[str, Any]]:
    """Paddle prints there too."""
    for line in printed.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _findings(lines: Iterable[dict[str, Any]], ended: str) -> Iterator[Finding]:
    begun = "GPU checks"
    for line in lines:
        if "device" in line:
            yield _device(line)
        elif "begins" in line:
            begun = line["begins"]
        else:
            yield _row(line)
            begun = ""
    if ended:
        yield Finding("broken", begun or "GPU checks", "did not finish", ended)


def _device(line: dict[str, Any]) -> Finding:
    version = f"paddle {line['paddle']}"
    if line["device"] == "gpu":
        return Finding("ok", "GPU", f"{line['name']}, {version}, bfloat16 beside the CPU's float32")
    return Finding("broken", "GPU", f"none is seen by {version}", _NO_GPU)


def _row(line: dict[str, Any]) -> Finding:
    if line["difference"] is None:
        level = "note" if line["problem"].startswith("not run") else "broken"
        return Finding(level, line["name"], line["problem"])
    detail = f"difference {line['difference']:.2g}, at most {line['limit']:g}"
    return Finding("broken" if line["problem"] else "ok", line["name"], detail, line["problem"])
