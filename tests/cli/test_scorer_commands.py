"""`grrm scorer`: environments of learned metrics, with stand-ins for what pip would fetch."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path

import pytest
from support.command_line import invoke
from support.metric_environments import COMET, TENTHS, TORCH, install, make_environment

from grrm.errors import UserError

METADATA = "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.7\n"


call = partial(invoke, "scorer")


def write_wheel(folder: Path) -> None:
    """A wheel of the name that the metric needs, with a stand-in inside."""
    folder.mkdir()
    info = "unbabel_comet-2.2.7.dist-info"
    with zipfile.ZipFile(folder / "unbabel_comet-2.2.7-py3-none-any.whl", "w") as wheel:
        wheel.writestr("comet/__init__.py", COMET)
        wheel.writestr(f"{info}/METADATA", METADATA)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_an_environment_is_made_and_the_metric_installed(tmp_path, monkeypatch):
    write_wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path / "wheels")
    folder = str(tmp_path / "comet")
    for _ in range(2):  # the second time keeps what is there
        assert "COMET is installed in" in call("install", "comet", "--folder", folder).output
    assert "COMET is installed in" in call("check", "comet", "--folder", folder).output
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match=r"cannot install MetricX in '.*' \(exit status 1\)"):
        call("install", "metricx", "--folder", tmp_path / "metricx")


def test_an_environment_is_checked(tmp_path):
    with pytest.raises(UserError, match=r"COMET has no environment at '.*none': create it with"):
        call("check", "comet", "--folder", tmp_path / "none")
    environment = make_environment(tmp_path)
    with pytest.raises(UserError, match=r"cannot import comet \(ModuleNotFoundError: No module named 'comet'\)"):
        call("check", "comet", "--folder", environment)
    install(environment, comet=COMET, torch=TORCH)
    assert "COMET is installed in" in call("check", "comet", "--folder", environment).output


def test_an_interpreter_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"cannot make the environment .*: No such file or directory"):
        call("install", "comet", "--folder", str(tmp_path / "x"), "--python", tmp_path / "python")


def test_a_learned_metric_ranks_a_file(rank, tmp_path):
    environment = make_environment(tmp_path)
    install(environment, comet=TENTHS, torch=TORCH)
    row = {"src_text": "s", "src_lang": "de", "trg_lang": "en", "trg_text": "r", "mt_texts": ["one", "three", "one"]}
    words = ["--judge", "comet", "--scorer-env", environment]
    assert rank([row], *words)[0]["judge_scores"] == [3.0, 5.0, 3.0]
    with pytest.raises(UserError, match="--permutations has no effect with --judge comet"):
        rank([row], *words, "--permutations", "2")
