"""Process set-up that must happen before paddle is imported: BLAS dispatch, threads, operator flags, garbage.

Call `configure_process()` first thing in every entry point. A variable the user has already set is left alone.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import platform
import signal
import sys
import warnings
from pathlib import Path

from grrm.deferred_imports import defer, quieten

_MKL = "MKL_DEBUG_CPU_TYPE"
_THREADS = "OMP_NUM_THREADS"
_STRIDE = "FLAGS_use_stride_kernel"
_CONTAINER = Path("/sys/fs/cgroup")
# A waiting thread spins for a millisecond and then sleeps. Generation has a hundred short loops a token, and waking
# threads up for each took longer than the loops; the default of 200 ms keeps cores from other processes. GCC's runtime
# (which counts turns instead, some 20 us here) has threads of its own beside paddle's and must let go of a core sooner.
_WAITING = {"KMP_BLOCKTIME": "1", "GOMP_SPINCOUNT": "1000"}


def cpu_facts() -> tuple[str, frozenset[str]]:
    """Vendor id and instruction-set flags of this CPU; ("unknown", empty) where /proc/cpuinfo is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown", frozenset()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return facts.get("vendor_id", "unknown"), frozenset(facts.get("flags", "").split())


def mkl_dispatch(vendor: str, flags: frozenset[str]) -> str | None:
    """Value of MKL_DEBUG_CPU_TYPE that makes the MKL inside the paddle wheel use AVX on AMD, None elsewhere.

    That MKL picks SSE kernels on CPUs that are not Intel's, at a quarter of the speed or less; results agree with NumPy
    to fp32 rounding either way.
    """
    if vendor != "AuthenticAMD":
        return None
    if "avx512f" in flags:
        return "7"
    return "5" if "avx2" in flags else None


def threads_per_process() -> int:
    """Usable cores divided among the trainer processes that the launcher started on this host."""
    return max(1, usable_cores() // local_processes())


def usable_cores() -> int:
    """Cores that this process may run on, or those whose time a container has, rounded up, where they are fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = [*container_limit("cpu.max"), "max", "1"][:2]
    return cores if quota == "max" else max(1, min(cores, -(-int(quota) // int(period))))


def container_limit(file: str) -> list[str]:
    """The words of a limit that is set for this container, such as memory.max; none without version 2 of cgroups."""
    try:
        return (_CONTAINER / file).read_text(encoding="utf-8").split()
    except OSError:
        return []


def local_processes() -> int:
    """Trainer processes that the launcher started on this host."""
    return int(os.environ.get("PADDLE_LOCAL_SIZE") or os.environ.get("PADDLE_TRAINERS_NUM") or 1)


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed memory instead of returning it to the system; False where there is no glibc.

    Every operator allocates its result; handing megabytes back and faulting them in again page by page costs more than
    the arithmetic of small models. All blocks come from the heap: by size glibc lets that be asked up to 32 MB only.
    Threads share one heap, see `share_heap`.
    """
    m_trim_threshold, m_mmap_max, never = -1, -4, -1
    return _ask_malloc(m_mmap_max, 0) and _ask_malloc(m_trim_threshold, never) and share_heap()


def share_heap() -> bool:
    """Ask glibc for one heap for all threads; False where there is no glibc.

    With heaps of their own, each thread of a server would keep what its largest request took.
    """
    m_arena_max = -8
    return _ask_malloc(m_arena_max, 1)


def _ask_malloc(parameter: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(parameter, value))
    except (OSError, AttributeError, TypeError):
        return False


def end_with_parent() -> None:
    """Have Linux send this process SIGTERM when the thread that started it ends, even if that was killed (SIGKILL)."""
    pr_set_pdeathsig = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def _is_rank_of_launcher() -> bool:
    """True in a process that `paddle.distributed.launch` started, in those that it started itself not."""
    return "PADDLE_BACKUP_ENV_PATH" in os.environ and os.getsid(0) == os.getpid()


def flush_denormals() -> bool:
    """Let this thread, and threads it starts, round numbers below 1e-38 to zero; False where that is not known how.

    Gradients of attention scores lie there by the thousand, and an Intel core takes a hundred cycles for each
    product that needs such a number: matrix products of a backward pass run at a quarter of their speed.
    """
    try:
        libm = ctypes.CDLL("libm.so.6")
    except OSError:
        return False
    if platform.machine() != "x86_64":
        return False
    environment = (ctypes.c_uint32 * 8)()  # glibc's fenv_t: 28 bytes for the x87, then the SSE control register
    flush_to_zero, denormals_are_zero = 1 << 15, 1 << 6
    if libm.fegetenv(environment) != 0:
        return False
    environment[7] |= flush_to_zero | denormals_are_zero
    return bool(libm.fesetenv(environment) == 0)


def configure_process() -> None:
    """Set what paddle reads once at import. Has no effect, and says so, when paddle is loaded already."""
    if "paddle" in sys.modules:
        warnings.warn("configure_process() was called after paddle was imported and changes nothing", stacklevel=2)
        return
    dispatch = mkl_dispatch(*cpu_facts())
    if dispatch is not None:
        os.environ.setdefault(_MKL, dispatch)
    os.environ.setdefault(_THREADS, str(threads_per_process()))
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in _WAITING.items():
            os.environ.setdefault(name, value)
    # Strided views make every following CPU operator take its slow path.
    os.environ.setdefault(_STRIDE, "0")
    os.environ.setdefault("GLOG_minloglevel", "2")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if _is_rank_of_launcher():
        end_with_parent()  # or ranks whose launcher was killed go on in the folder in which the next run resumes
    keep_freed_memory()
    flush_denormals()
    defer()
    quieten()
    # Imports make a million objects that stay; `freeze_gc` sets this back once they are done.
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)  # or the last look for garbage, as the process ends, takes most of a second
    warnings.filterwarnings("ignore", message="The value of the smallest subnormal")
    warnings.filterwarnings("ignore", message=r"(?s).*(softmax_with_cross_entropy|incubate\.nn\.functional\.swiglu)")
    warnings.filterwarnings("ignore", message="No ccache found")
    warnings.filterwarnings("ignore", message="Setuptools is replacing distutils")


def freeze_gc(threshold: int = 700) -> None:
    """Call once everything is imported and loaded: what is there now is never looked through for garbage again.

    Doing so over and over took a tenth of a process's start and a quarter of generation. From then on Python collects
    after `threshold` new containers.
    """
    gc.freeze()
    gc.set_threshold(threshold, 10, 10)


def describe() -> dict[str, str]:
    """The settings in force, for `grrm doctor` and the run's log."""
    vendor, flags = cpu_facts()
    isa = [name for name in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16") if name in flags]
    settings = {name: os.environ.get(name, "not set") for name in (_MKL, _THREADS, *_WAITING, _STRIDE)}
    return {"cpu": vendor, "instruction sets": " ".join(isa) or "baseline", **settings}
