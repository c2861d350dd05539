"""Process set-up before paddle is imported: the right BLAS dispatch, and the user's own variables left alone."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest
from support.command_line import python

from grrm import startup
from grrm.entry import run_main

OURS = (
    "MKL_DEBUG_CPU_TYPE",
    "OMP_NUM_THREADS",
    "KMP_BLOCKTIME",
    "GOMP_SPINCOUNT",
    "FLAGS_use_stride_kernel",
    "GLOG_minloglevel",
)


@pytest.mark.parametrize(
    ("vendor", "flags", "value"),
    [
        ("AuthenticAMD", {"sse2", "avx2", "avx512f"}, "7"),
        ("AuthenticAMD", {"sse2", "avx2"}, "5"),
        ("AuthenticAMD", {"sse2"}, None),
        ("GenuineIntel", {"avx2", "avx512f"}, None),
        ("unknown", set(), None),
    ],
)
def test_dispatch_is_forced_on_amd_only_and_never_beyond_what_the_cpu_has(vendor, flags, value):
    assert startup.mkl_dispatch(vendor, frozenset(flags)) == value


def test_cpu_facts_without_proc_are_unknown(monkeypatch):
    def missing(self, **options):
        raise FileNotFoundError

    monkeypatch.setattr(startup.Path, "read_text", missing)
    assert startup.cpu_facts() == ("unknown", frozenset())


def test_cores_are_divided_among_the_ranks_of_this_host(monkeypatch):
    monkeypatch.setattr(startup.os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.delenv("PADDLE_LOCAL_SIZE", raising=False)
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    assert startup.threads_per_process() == 6
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "4")
    assert startup.threads_per_process() == 1
    monkeypatch.setenv("PADDLE_LOCAL_SIZE", "2")
    assert startup.threads_per_process() == 3
    monkeypatch.setenv("PADDLE_LOCAL_SIZE", "64")
    assert startup.threads_per_process() == 1


@pytest.mark.parametrize(("limit", "cores"), [("max 100000", 6), ("150000 100000", 2), ("900000 100000", 6)])
def test_a_container_has_as_many_cores_as_its_limit_pays_for(monkeypatch, tmp_path, limit, cores):
    monkeypatch.setattr(startup.os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setattr(startup, "_CONTAINER", tmp_path)
    assert startup.usable_cores() == 6
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert startup.usable_cores() == cores


def configured(monkeypatch, **preset: str) -> dict[str, str | None]:
    """What configure_process() leaves in the environment of a fresh process."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    for name, value in preset.items():
        monkeypatch.setenv(name, value)
    code = (
        "import json, os, sys\nfrom grrm import startup\n"
        "startup.cpu_facts = lambda: ('AuthenticAMD', frozenset({'avx2'}))\n"
        "startup.configure_process()\n"
        f"print(json.dumps({{name: os.environ.get(name) for name in {OURS}}}))\n"
        "assert 'paddle' not in sys.modules"
    )
    done = python("-c", code)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_process_is_configured_before_paddle(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1000")
    monkeypatch.delenv("PADDLE_LOCAL_SIZE", raising=False)
    assert configured(monkeypatch) == {
        "MKL_DEBUG_CPU_TYPE": "5",
        "OMP_NUM_THREADS": "1",
        "KMP_BLOCKTIME": "1",
        "GOMP_SPINCOUNT": "1000",
        "FLAGS_use_stride_kernel": "0",
        "GLOG_minloglevel": "2",
    }


def test_variables_of_the_user_are_left_alone(monkeypatch):
    preset = dict.fromkeys(OURS, "1")
    assert configured(monkeypatch, **preset) == preset


def test_too_late_is_said_and_changes_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", object())
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    with pytest.warns(UserWarning, match="after paddle was imported and changes nothing"):
        startup.configure_process()
    assert not any(name in startup.os.environ for name in OURS)


def test_description_names_every_setting(monkeypatch):
    monkeypatch.setattr(startup, "cpu_facts", lambda: ("AuthenticAMD", frozenset({"avx2", "sse2"})))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE", raising=False)
    described = startup.describe()
    assert described["cpu"] == "AuthenticAMD"
    assert described["instruction sets"] == "avx2"
    assert described["OMP_NUM_THREADS"] == "3"
    assert described["MKL_DEBUG_CPU_TYPE"] == "not set"


DENORMAL = """
from grrm import startup
import numpy as np
before = float(np.float32(1e-30) * np.float32(1e-10))
flushed = startup.flush_denormals()
after = np.array([1e-30], dtype="float32") * np.array([1e-10], dtype="float32")
import threading
seen = []
thread = threading.Thread(target=lambda: seen.append(np.array([1e-30], "float32") * np.array([1e-10], "float32")))
thread.start(); thread.join()
print(flushed, before > 0, float(after[0]), float(seen[0][0]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the control register is x86's")
def test_products_too_small_for_a_float_are_zero_here_and_in_later_threads():
    done = python("-c", DENORMAL)
    assert done.stdout.split() == ["True", "True", "0.0", "0.0"]


def test_denormals_stay_where_nobody_knows_how_to_flush_them():
    code = "from grrm import startup; startup.platform.machine = lambda: 'riscv64'; print(startup.flush_denormals())"
    done = python("-c", code)
    assert done.stdout.strip() == "False"


def test_what_was_imported_is_not_looked_through_for_garbage_again():
    code = (
        "import gc\nfrom grrm import startup\nstartup.configure_process()\n"
        "assert gc.isenabled() and gc.get_threshold()[0] > 10_000\n"
        "import json.tool\nstartup.freeze_gc()\n"
        "assert gc.get_freeze_count() > 1_000 and gc.get_threshold() == (700, 10, 10)\n"
        "class Node: pass\n"
        "import weakref\nnode = Node()\nnode.self = node\nseen = weakref.ref(node)\ndel node\ngc.collect()\n"
        "assert seen() is None"
    )
    assert python("-c", code).returncode == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_freed_memory_is_used_again_however_large_the_block():
    code = """
import json, resource, sys
import numpy as np
from grrm.startup import keep_freed_memory
kept, faults = keep_freed_memory(), []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(25_000_000, dtype="float32")
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps([kept, faults]))
"""
    done = python("-c", code)
    kept, (first, *later) = json.loads(done.stdout)
    assert kept
    assert max(later) < first / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_threads_take_turns_with_the_same_freed_memory():
    code = """
import threading
import numpy as np
from grrm.startup import keep_freed_memory

keep_freed_memory()
barrier, turn = threading.Barrier(8), threading.Lock()

def work():
    barrier.wait()  # all threads are alive at once, as those of a server are
    with turn:
        np.ones(8_000_000).sum()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]) * 4096 / 1e6)
"""
    done = python("-c", code)
    assert float(done.stdout) < 3 * 64 + 150  # eight heaps would hold 512 MB


# --- what a package that is not installed looks like at every entry point


@pytest.mark.parametrize(
    ("package", "extra"),
    [("safetensors", "cpu"), ("paddle", "cpu"), ("flask", "server"), ("sacrebleu", "metrics"), ("gguf", "models")],
)
def test_a_package_of_an_extra_that_is_missing_is_one_sentence(package, extra, capsys):
    def main():
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    with pytest.raises(SystemExit) as caught:
        run_main(main)
    assert caught.value.code == 2
    words = capsys.readouterr().err
    assert words.startswith(f"error: the package {package} is not installed: run `pip install 'paddle-grrm[{extra}]'`")
    assert words.count("\n") == 1


def test_a_report_without_its_extra_is_one_sentence(tmp_path):
    """Jinja2 and MarkupSafe come with the extra alone, and either may be imported first."""
    code = "import sys; sys.modules.update(jinja2=None, markupsafe=None); from grrm.cli import main; main()"
    command = [sys.executable, "-c", code, "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "run `pip install 'paddle-grrm[report]'`" in done.stderr


@pytest.mark.parametrize("module", ["grrm.nowhere", "paddle.nowhere"])
def test_a_module_that_no_extra_installs_is_a_defect(module):
    def main():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(ModuleNotFoundError):
        run_main(main)


WITHOUT_PADDLE = """
import grrm.config
import grrm.engine.options, grrm.engine.open
import grrm; grrm.rank; grrm.translate
grrm.engine.open.open_generator(None, urls=['http://127.0.0.1:1'])
import grrm.cli, grrm.cli.commands.doctor, grrm.config.plan
import grrm.algorithms.advantages
import grrm.evaluation.probes.measure
import grrm_reward_server.main, grrm_reward_server.app, grrm.rewards.client
from grrm_reward_server import hosting, settings
hosting.build_hosted_judge(settings.Settings(judge='chrf'))
hosting.build_hosted_judge(settings.Settings(judge='gqm', openai_urls=['http://127.0.0.1:1']))
"""
NAMES_OF_LANGUAGES = """
from grrm.gqm.languages import *
[display_name(lang) + language_code(lang) for pair in LANG_NAMES.items() for lang in pair]
"""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import grrm; dir(grrm)", ("paddle", "numpy", "requests", "pydantic")),
        (WITHOUT_PADDLE, ("paddle", "paddlenlp", "torch")),
        (NAMES_OF_LANGUAGES, ("babel",)),
    ],
    ids=["the package", "what runs no model", "languages"],
)
def test_what_is_not_needed_is_not_imported(code, absent):
    done = python("-c", f"import sys\n{code}\nprint([name for name in {absent} if name in sys.modules])")
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
