"""Paddle's operators around the kernels: how they are compiled, and what becomes of a process that cannot have them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from grrm.models.cpu_layers.operators import available
from grrm_csrc import compiling, operators
from grrm_csrc.build import kernels

pytestmark = pytest.mark.skipif(not available(), reason="there is no C++ compiler here")


@pytest.mark.slow
def test_operators_with_the_cuda_kernels_compile(tmp_path, monkeypatch):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("there is no nvcc here")
    monkeypatch.setattr(operators, "_nvcc", lambda wheel: nvcc)
    library = operators.operator_library.__wrapped__(kernels().path)
    assert library.with_cuda
    library.compile_to(tmp_path / "operators.so", operators.operator_compiler())
    symbols = subprocess.run(
        ["nm", "-D", tmp_path / "operators.so"], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert " T grrm_cuda_score_tokens_backward" in symbols


def test_operators_of_a_paddle_for_the_cpu_have_no_cuda_kernels_whatever_compilers_there_are():
    assert not operators.operator_library(kernels().path).with_cuda
    assert operators.operator_compiler() == compiling.find_compiler()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with the kernels alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "paddle-grrm").mkdir()
    shutil.copy(kernels().path, tmp_path / "paddle-grrm")
    return tmp_path / "paddle-grrm"


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.splitlines()[-2:]


STEP = """
import paddle
from grrm.models.cpu_layers import operators, use_cpu_layers
from grrm.models.token_scores import score_logits
use_cpu_layers()
from paddlenlp.transformers import Qwen2Config, Qwen2ForCausalLM
paddle.seed(1)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                                     num_attention_heads=2, num_key_value_heads=1))
logits = model(paddle.to_tensor([[3, 4, 5, 6]]))[0].reshape([4, 50])
scores = score_logits(logits, paddle.to_tensor([1, 2, 3, 4]))
scores[0].sum().backward()
weight = model.qwen2.embed_tokens.weight
print(operators.available(), operators.operators().reason)
print(float(scores[0].sum()), float((weight.grad ** 2).sum()))
"""


@pytest.mark.slow
def test_training_goes_on_in_plain_operators_where_these_cannot_be_compiled(monkeypatch, tmp_path, cache):
    script = tmp_path / "c++"
    real = compiling.find_compiler()[0]
    script.write_text(
        f"""#!/bin/sh
case "$*" in *operators.cpp*) echo "x.h:1: error: no such header" >&2; exit 1;; esac
exec "{real}" "$@"
"""
    )
    script.chmod(0o755)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("CXX", f"'{script}'")
        without = run(STEP)
    assert without[0] == f"False {script} failed: x.h:1: error: no such header"
    with_them = run(STEP)
    assert with_them[0] == "True "
    for one, other in zip(with_them[1].split(), without[1].split(), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-4)


@pytest.mark.slow
def test_an_operators_library_that_was_cut_short_is_compiled_again(cache):
    script = "from grrm.models.cpu_layers import operators\nprint(operators.operators())"
    made = "Operators(registered=True, reason='', with_cuda=False)"
    assert run(script)[-1] == made
    (library,) = cache.glob("operators-*.so")
    library.write_bytes(b"")
    assert run(script)[-1] == made
    assert library.stat().st_size > 10_000
