"""`grrm doctor` on healthy and on broken machines."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import invoke

from grrm.cli.commands import doctor, doctor_packages

ROOT = Path(__file__).parents[2]
HEALTHY = {**dict.fromkeys(doctor_packages.NEEDED, "1.0"), "numpy": "1.26.4", "pyarrow": "20.0.0"}


def examine(versions=HEALTHY, error=None, port=0, tell=lambda line: None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "installed_version", versions.get)
        patch.setattr(doctor, "paddle_import_error", lambda: tell("imported") or error)
        patch.setattr(doctor, "DEFAULT_PORT", port)
        findings = doctor.examine(Path("nowhere/yet"), tell)
    assert len(findings) == len({finding.name for finding in findings})
    return {finding.name: finding for finding in findings}


def test_a_healthy_machine_has_nothing_broken():
    findings = examine()
    assert not [finding for finding in findings.values() if finding.level == "broken"]
    assert findings["matplotlib"].level == "note"
    assert findings["matplotlib"].effect == "disables curves in the demo's report"
    assert findings["port 0"].level == "ok"


def test_a_line_is_told_before_each_group_of_checks():
    told = []
    examine(tell=told.append)
    assert [line.split()[0] for line in told] == ["[1/5]", "[2/5]", "imported", "[3/5]", "[4/5]", "[5/5]"]


def test_the_tools_of_make_test_and_make_lint_are_looked_for():
    findings = examine()
    tools = {name: findings[name].effect for name in ("hypothesis", "pytest-xdist", "mypy", "import-linter")}
    assert set(tools.values()) == {"disables make test", "disables make lint"}


def test_packages_are_looked_for_under_the_names_that_are_installed():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    of_the_user = {"tensorboardx", "wandb", "fastdeploy-gpu", "paddlepaddle-gpu"}
    named = {name.lower() for name in {**doctor_packages.NEEDED, **doctor_packages._OPTIONAL}}
    assert named - pinned - of_the_user == set()


def test_a_missing_main_package_is_broken_and_says_what_it_disables():
    finding = examine({key: value for key, value in HEALTHY.items() if key != "flask"})["flask"]
    assert (finding.level, finding.detail, finding.effect) == ("broken", "not installed", "disables the reward server")


@pytest.mark.parametrize(
    ("name", "version"),
    [("numpy", "2.1.0"), ("aistudio-sdk", "0.3.9"), ("protobuf", "7.36.2"), ("fastdeploy", "0.0.1")],
)
def test_known_traps_are_named_with_their_remedy(name, version):
    finding = examine({**HEALTHY, name: version})[f"{name} (known trap)"]
    assert finding.level == "warning"
    assert "pip" in finding.effect


def test_versions_below_a_trap_are_fine():
    assert "aistudio-sdk (known trap)" not in examine({**HEALTHY, "aistudio-sdk": "0.2.6"})
    assert "numpy (known trap)" not in examine()


def test_a_gpu_build_replaces_the_cpu_build_but_not_both():
    gpu_only = {key: value for key, value in HEALTHY.items() if key != "paddlepaddle"} | {"paddlepaddle-gpu": "3.3.1"}
    assert "paddlepaddle" not in examine(gpu_only)
    assert examine({**HEALTHY, "paddlepaddle-gpu": "3.3.1"})["paddlepaddle (known trap)"].level == "broken"


def test_an_import_that_fails_is_broken_whatever_pip_says():
    finding = examine(error="ImportError: hub.download")["import paddle, paddlenlp"]
    assert "else install `paddle-grrm[cpu]`" in finding.effect  # a wheel has no make
    assert (finding.level, finding.detail) == ("broken", "ImportError: hub.download")


def test_the_import_is_tried_in_a_child(monkeypatch):
    monkeypatch.setattr(doctor.sys, "executable", "/bin/false")
    assert doctor.paddle_import_error() == "exit status 1"


def test_other_versions_than_the_tested_ones_are_a_warning(tmp_path, monkeypatch):
    pins = tmp_path / "constraints.txt"
    pins.write_text("# comment\nFlask==3.1.3\n")
    monkeypatch.setattr(doctor, "constraints_file", lambda: pins)
    assert examine({**HEALTHY, "flask": "3.1.3"})["flask"].level == "ok"
    finding = examine()["flask"]
    assert (finding.level, finding.effect) == ("warning", "tested with 3.1.3: install with -c constraints.txt")
    monkeypatch.setattr(doctor, "constraints_file", lambda: tmp_path / "absent.txt")
    assert examine()["flask"].level == "ok"


def test_a_pin_for_another_python_is_not_the_tested_version(tmp_path, monkeypatch):
    pins = tmp_path / "constraints.txt"
    pins.write_text('flask==3.1.3; python_version >= "3.10"\nflask==2.0.0; python_version < "3.10"\n')
    monkeypatch.setattr(doctor, "constraints_file", lambda: pins)
    assert examine({**HEALTHY, "flask": "3.1.3"})["flask"].level == "ok"
    assert "tested with 3.1.3" in examine({**HEALTHY, "flask": "2.0.0"})["flask"].effect


def test_a_port_in_use_is_a_warning_with_a_remedy():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = examine(port=port)[f"port {port}"]
    assert finding.level == "warning"
    assert "--port" in finding.effect


def test_python_outside_the_tested_range_is_broken(monkeypatch):
    assert examine()["Python"].level == "ok"
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=(3, 13, 0)))
    assert examine()["Python"].level == "broken"


def test_scarce_memory_and_disk_are_warnings(monkeypatch):
    monkeypatch.setattr(doctor.os, "sysconf", lambda name: 1024)
    assert examine()["memory"].level == "warning"
    monkeypatch.setattr(doctor.os, "sysconf", lambda name: 2**20)
    monkeypatch.setattr(doctor.startup, "container_limit", lambda file: ["1073741824"] * (file == "memory.max"))
    assert examine()["memory"].detail == "1.0 GiB"  # of the container
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 5})())
    assert examine()["disk"].level == "warning"


def test_missing_tools_say_what_they_disable(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    findings = examine()
    assert "python -m grrm_csrc.setup_ops install" in findings["C++ compiler"].effect
    assert "CUDA kernels of token scores" in findings["nvcc"].effect
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert (examine()["C++ compiler"].level, examine()["nvcc"].level) == ("ok", "ok")


def test_kernels_that_could_not_be_compiled_are_a_note_with_the_reason(monkeypatch):
    monkeypatch.setattr(doctor, "kernels", lambda: doctor.Kernels(None, "c++ failed: no room"))
    finding = examine()["CPU kernels"]
    assert (finding.level, finding.detail) == ("note", "c++ failed: no room")
    assert "plain Paddle operators" in finding.effect


def test_kernels_without_a_blas_are_a_note_that_says_what_is_slow(monkeypatch):
    monkeypatch.setattr(doctor, "kernels", lambda: SimpleNamespace(library=object(), path=None))
    monkeypatch.setattr(doctor, "sgemm_address", lambda: None)
    finding = examine()["CPU kernels"]
    assert finding.level == "note"
    assert "generation uses plain Paddle operators" in finding.effect
    monkeypatch.setattr(doctor, "sgemm_address", lambda: 1)
    assert examine()["CPU kernels"].level == "ok"


def test_a_cpu_without_vector_units_is_told_what_it_costs(monkeypatch):
    monkeypatch.setattr(doctor.startup, "cpu_facts", lambda: ("unknown", frozenset()))
    findings = examine()
    assert findings["CPU avx2"].level == "warning"
    assert findings["CPU avx512_bf16"].level == findings["CPU avx512_vnni"].level == "note"


def test_output_is_plain_without_a_terminal_and_a_table_on_one(capsys, monkeypatch):
    findings = [doctor.Finding("broken", "flask", "not installed", "disables [the server]")]
    doctor.show(findings, "The main path")
    assert capsys.readouterr().out.splitlines() == [
        "broken   flask not installed: disables [the server]",
        "The main path cannot run: mend flask.",
    ]

    monkeypatch.setattr(doctor.sys.stdout, "isatty", lambda: True)
    doctor.show(findings, "The main path")
    assert "disables [the server]" in capsys.readouterr().out


@pytest.mark.parametrize(("error", "status", "verdict"), [(None, 0, "can run"), ("ImportError: x", 1, "cannot run")])
def test_the_exit_status_is_zero_unless_the_main_path_cannot_run(monkeypatch, error, status, verdict):
    monkeypatch.setattr(doctor, "paddle_import_error", lambda: error)
    monkeypatch.setattr(doctor, "installed_version", HEALTHY.get)
    result = invoke("doctor")
    assert result.return_value == status
    assert verdict in result.output


@pytest.mark.parametrize(("name", "level"), [("paddlenlp-ops", "note"), ("fused-ln", "note"), ("fast-ln", "note")])
def test_operators_that_are_not_used_are_said_to_be(name, level):
    finding = examine({**HEALTHY, name: "1.0"})[name]
    assert finding.level == level
    assert finding.effect.startswith("not used: ")


@pytest.mark.parametrize(("version", "level"), [("2.4.1", "warning"), ("2.5.0", "note"), ("2.6.0", None)])
def test_what_a_fastdeploy_can_do_is_told_by_its_version(version, level):
    finding = examine({**HEALTHY, "fastdeploy-gpu": version}).get("fastdeploy-gpu (interface)")
    assert (finding and finding.level) == level
