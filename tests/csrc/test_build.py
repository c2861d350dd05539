"""The kernels are compiled once, loaded whole or not at all, and their absence has a reason."""

from __future__ import annotations

import stat
import sys

import pytest

from grrm_csrc import build, compiling

pytestmark = pytest.mark.skipif(compiling.find_compiler() is None, reason="there is no C++ compiler here")


@pytest.fixture
def load(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return build.kernels.__wrapped__


def compiler(folder, script: str) -> str:
    """A program that runs the script; its first line names no interpreter, whose path may hold blanks."""
    (folder / "compiler.py").write_text(f"import sys\n{script}\n")
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder / "compiler.py"}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture(scope="module")
def compiled():
    """The kernels of this process; asked for before a test puts the cache elsewhere."""
    return build.kernels().path


@pytest.fixture
def copying(compiled, load, monkeypatch, tmp_path_factory):
    """A compiler that takes no time: it copies the kernels that this process has."""
    script = f"""import shutil
if "--version" in sys.argv:
    print("copying 1.0")
else:
    shutil.copy({str(compiled)!r}, sys.argv[sys.argv.index("-o") + 1])"""
    monkeypatch.setenv("CXX", compiler(tmp_path_factory.mktemp("copying"), script))
    return load


def test_the_library_is_compiled_once(copying, tmp_path, monkeypatch):
    assert copying().library is not None
    monkeypatch.setattr(compiling.Library, "compile_to", lambda *_: pytest.fail("compiled again"))
    assert copying().library is not None
    (made,) = (tmp_path / "paddle-grrm").iterdir()
    assert made.suffix == ".so"


def test_another_compiler_or_source_gives_another_name(monkeypatch, tmp_path):
    compiler_path = compiling.find_compiler()
    before = build.kernel_library().fingerprint(compiler_path)
    assert build.kernel_library().fingerprint([compiler(tmp_path, "print('another 1.0')")]) != before
    assert build.kernel_library().fingerprint([*compiler_path, "-march=native"]) != before
    source = tmp_path / "kernels" / "new.h"
    source.parent.mkdir()
    source.write_text("// new")
    monkeypatch.setattr(compiling, "SOURCES", tmp_path)
    assert build.kernel_library().fingerprint(compiler_path) != before


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"GRRM_KERNELS": "off"}, "GRRM_KERNELS is off"),
        ({"CXX": "no-such-compiler"}, "no CXX=no-such-compiler is on PATH"),
        ({"CXX": "g++ 'open"}, "no CXX=g++ 'open is on PATH"),
    ],
)
def test_kernels_that_are_not_wanted_or_cannot_be_made_say_why(load, monkeypatch, environment, reason):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = load()
    assert found.library is None
    assert reason in found.reason


def test_a_compiler_that_fails_leaves_nothing_behind(load, monkeypatch, tmp_path):
    script = "sys.exit(0) if '--version' in sys.argv else sys.exit('x.h:1: error: no room on this disk')"
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    found = load()
    assert found.library is None
    assert "no room on this disk" in found.reason
    assert not list((tmp_path / "paddle-grrm").iterdir())


def test_a_cache_that_cannot_be_written_is_a_reason_not_a_crash(load, tmp_path):
    (tmp_path / "paddle-grrm").write_text("a file where the folder should be")
    found = load()
    assert found.library is None
    assert "cannot be written" in found.reason


@pytest.mark.parametrize("script", ["sys.exit('no licence')", "sys.exit(3)"])
def test_a_compiler_that_does_not_even_tell_its_version_is_a_reason(load, monkeypatch, tmp_path, script):
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    found = load()
    assert found.library is None
    assert "compiler failed: " in found.reason


def test_a_user_without_a_home_is_a_reason(load, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(compiling.Path, "home", homeless)
    assert "home directory" in load().reason


def test_a_library_that_was_cut_short_is_compiled_again(copying):
    path = compiling.cache_folder() / f"kernels-{build.kernel_library().fingerprint(compiling.find_compiler())}.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert copying().library is not None
    assert path.stat().st_size > 10_000


def test_arguments_of_the_compiler_are_kept(monkeypatch):
    name = compiling.find_compiler()[0]
    monkeypatch.setenv("CXX", f"{name} -DNDEBUG")
    assert compiling.find_compiler() == [name, "-DNDEBUG"]
