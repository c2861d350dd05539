"""A wheel built from this checkout, installed where nothing else is, does what a clone does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Folder of the checkout -> where a wheel has it.
PLACES = {
    "llm/alignment/grrm": "grrm",
    "llm/config": "grrm/recipes",
    "reward_server": "grrm_reward_server",
    "csrc": "grrm_csrc",
}
TINY = "llm/config/qwen/grpo_grrm_tiny_argument.yaml"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked_files() -> list[str]:
    return run("git", "ls-files", cwd=ROOT).splitlines()


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the tracked files: building leaves nothing behind in the checkout, and takes up nothing from it."""
    copy = tmp_path_factory.mktemp("source")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--wheel-dir", folder, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return python


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_every_file_of_the_packages_and_the_argument_files(wheel):
    expected = {
        f"{place}/{name.removeprefix(folder + '/')}"
        for folder, place in PLACES.items()
        for name in tracked_files()
        if name.startswith(f"{folder}/")
    }
    assert names_in(wheel) == expected


def test_a_wheel_built_from_the_source_archive_is_the_same(wheel, source, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "setuptools>=77", cwd=tmp_path)
    run(python, "-c", f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})", cwd=source)
    (archive,) = tmp_path.glob("*.tar.gz")
    run(python, "-m", "pip", "wheel", archive, "--no-deps", "--no-build-isolation", "-w", tmp_path, cwd=tmp_path)
    (built,) = tmp_path.glob("*.whl")
    assert names_in(built) == names_in(wheel)


def test_from_an_empty_environment_to_a_folder_in_which_training_can_start(bare, tmp_path):
    grrm = bare.with_name("grrm")
    assert "init" in run(grrm, "--help", cwd=tmp_path)
    run(grrm, "init", "work", cwd=tmp_path)
    work = tmp_path / "work"
    assert (work / TINY).read_bytes() == (ROOT / TINY).read_bytes()
    assert "prompts per rollout" in run(grrm, "plan", TINY, "--nproc", "2", cwd=work)
    for script in ("run_rl", "run_sft", "run_dpo", "run_reward"):
        usage = run(bare, "-m", f"grrm.{script}", "--help", cwd=work)
        assert f"{script}.py" in usage
        assert run(bare, f"llm/alignment/grrm/{script}.py", "--help", cwd=work) == usage
    assert "--judge" in run(bare, "reward_server/reward_server.py", "--help", cwd=work)


def test_what_an_empty_environment_lacks_is_one_sentence_that_says_how_to_install_it(bare, tmp_path):
    command = [bare.with_name("grrm"), "data", "tokenizer", tmp_path / "rows.parquet", tmp_path / "tokenizer"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: the package tokenizers is not installed: run `pip install 'paddle-grrm[cpu]'`"
    )
