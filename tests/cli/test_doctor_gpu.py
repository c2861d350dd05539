"""`grrm doctor --gpu`: its checks on a CPU, with stand-ins for the operators that only GPUs have, and its report."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import paddle
import pytest
from engine.paddle.fused_reference import reference_operators
from support.command_line import refusal
from support.stopped_clock import eventually

from grrm.cli import gpu_check
from grrm.cli.commands import doctor
from grrm.cli.gpu_check import CHECKS, Reference, Target, run_check
from grrm.demo.processes import descendants, is_alive


def flashmask(query, key, value, startend_row_indices, causal):
    """Row i sees column j from j on, and before the row that the column names."""
    assert causal
    rows, columns = (np.arange(query.shape[1]).reshape(shape) for shape in ((-1, 1), (1, -1)))
    ends = startend_row_indices.numpy().reshape(1, -1)
    scores = np.einsum("qhd,khd->hqk", query.numpy()[0], key.numpy()[0]) / np.sqrt(query.shape[-1])
    weights = np.exp(np.where((columns <= rows) & (rows < ends), scores, -np.inf))
    attended = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), value.numpy()[0])
    return paddle.to_tensor(attended[None])


def see_everything(query, key, value, startend_row_indices, causal):
    return flashmask(query, key, value, paddle.full_like(startend_row_indices, query.shape[1]), causal)


@pytest.fixture
def target():
    before = paddle.get_device()
    yield Target("cpu", "float32", reference_operators(), flashmask)
    paddle.set_device(before)


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "collective"])
def test_a_check_passes_where_the_operators_do_what_they_should(target, name):
    row = run_check(name, Reference(target))
    assert row.problem == ""
    assert row.difference <= row.limit


def wrong_attention(*args, **kwargs):
    out, *rest = reference_operators().block_attention(*args, **kwargs)
    return out * 1.01, *rest


def no_number(*args, **kwargs):
    out, *rest = reference_operators().block_attention(*args, **kwargs)
    return out * float("nan"), *rest


def failing(*args, **kwargs):
    raise RuntimeError("CUDA error(700)\n  an illegal memory access was encountered.")


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("FlashMask", {"flashmask": see_everything}, "more than rounding explains"),
        ("FlashMask", {"flashmask": failing}, "an illegal memory access was encountered."),
        ("block attention", {"block_attention": wrong_attention}, "more than rounding explains"),
        ("block attention", {"block_attention": no_number}, "more than rounding explains"),
        ("block attention", {"block_attention": failing}, "an illegal memory access was encountered."),
    ],
)
def test_an_operator_that_is_wrong_or_fails_is_told(target, name, change, problem):
    if "block_attention" in change:
        change = {"operators": replace(target.operators, **change)}
    assert run_check(name, Reference(replace(target, **change))).problem == problem


def test_other_draws_and_a_step_that_goes_elsewhere_are_told(target, monkeypatch):
    reference = Reference(target)
    real = gpu_check.gpu_sampling.sample_tokens
    monkeypatch.setattr(
        gpu_check.gpu_sampling, "sample_tokens", lambda logits, params, *rest: real(-logits, params, *rest)
    )
    assert run_check("sampling", reference).problem == "more than rounding explains"
    losses = iter([np.array([5.0, 4.0, 3.0]), np.array([5.0, 5.0, 5.0])])
    monkeypatch.setattr(gpu_check, "_losses", lambda *_: next(losses))
    assert run_check("training step", reference).problem == "more than rounding explains"


def test_without_stand_ins_a_cpu_leaves_out_what_only_gpus_have():
    reference = type("Any", (), {"target": Target("cpu", "float32")})()
    assert run_check("FlashMask", reference).problem.startswith("not run")


def test_one_gpu_has_no_other_to_exchange_numbers_with(monkeypatch):
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 1)
    reference = type("Any", (), {"target": Target("gpu", "bfloat16")})()
    assert run_check("collective", reference).problem == "not run: there is no second GPU"


def report(script: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "CHECK", [sys.executable, "-c", script])
        return {finding.name: finding for finding in doctor.examine_gpu()}


def test_a_crash_is_told_with_the_check_it_was_at():
    found = report(
        """import os; print('{"device": "gpu", "name": "H100", "paddle": "3.3.1"}'); print('{"begins": "FlashMask"}',
        flush=True); os.kill(os.getpid(), 11)"""
    )
    assert found["GPU"].level == "ok"
    assert (found["FlashMask"].level, found["FlashMask"].effect) == ("broken", "the process died of signal 11")


@pytest.mark.slow
def test_a_check_that_is_killed_leaves_no_launcher(tmp_path):
    launcher, has_begun = tmp_path / "launcher", tmp_path / "begun"
    launcher.write_text(f"#!/bin/sh\n: > {has_begun}; exec sleep 300\n")
    launcher.chmod(0o755)
    script = (
        "from types import SimpleNamespace as Fields\nfrom grrm.cli import gpu_check\n"
        f"gpu_check.sys.executable = {str(launcher)!r}\n"
        "gpu_check.check_collective(Fields(target=Fields(device='cpu')))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as check:
        eventually(has_begun.exists)
        (started,) = descendants(check.pid)
        check.kill()
    eventually(lambda: not is_alive(started))


def test_paddle_that_cannot_start_is_told():
    found = report("raise ImportError('libcuda.so.1: cannot open shared object file')")
    assert found["GPU checks"].effect == "ImportError: libcuda.so.1: cannot open shared object file"


@pytest.mark.slow
def test_on_a_cpu_the_command_says_that_it_tried_no_gpu():
    found = {finding.name: finding for finding in doctor.examine_gpu()}
    assert found.keys() == {"GPU", *CHECKS}
    assert found["GPU"].level == "broken"
    assert "on the CPU, which tries them and not a GPU" in found["GPU"].effect
    gpu_only = {"block attention", "FlashMask"}
    for name in CHECKS:
        assert found[name].level == ("note" if name in gpu_only else "ok"), found[name]


def test_the_folder_of_runs_is_no_part_of_it():
    assert refusal("doctor", "--gpu", "--output-dir", "x") == "--output-dir has no effect with --gpu; leave it out"
