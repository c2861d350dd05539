"""Training with bfloat16 products on a CPU: gradients of rounded factors, float32 everywhere else, a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.rl_processes import CONFIGS, SCRIPTS, TinyWorld, entry_command, metrics_of, one_rank, run

from grrm.data.convert import convert_to_sft
from grrm.errors import UserError
from grrm.models import cpu_layers
from grrm.models.cpu_kernels import available
from grrm.models.cpu_layers import install
from grrm.models.cpu_layers.precision import current_precision, set_precision
from grrm.models.cpu_layers.projection import CpuLinear, kernel_matmul
from grrm.models.token_scores import exceeds_chunk, linear_scores

pytestmark = pytest.mark.skipif(not available(), reason="there is no C++ compiler here")


@pytest.fixture
def bfloat16():
    set_precision("bfloat16")
    yield
    set_precision("float32")


def tensor(array: np.ndarray) -> paddle.Tensor:
    made = paddle.to_tensor(np.asarray(array, np.float32))
    made.stop_gradient = False
    return made


def coarse(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers that rounding to bfloat16 leaves alone, so that products can be compared exactly."""
    return rng.integers(-8, 9, shape).astype(np.float32) / 8


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_projection_and_its_gradients(has_bias: bool, bfloat16: None) -> None:
    rng = np.random.default_rng(0)
    layer = CpuLinear(20, 33, bias_attr=None if has_bias else False)
    weight, x, g = coarse(rng, 20, 33), coarse(rng, 2, 5, 20), coarse(rng, 2, 5, 33)
    layer.weight.set_value(weight)
    xt = tensor(x)
    y = layer(xt)
    bias = layer.bias.numpy() if has_bias else 0.0
    np.testing.assert_allclose(y.numpy(), x @ weight + bias, atol=1e-5)
    (y * paddle.to_tensor(g)).sum().backward()
    np.testing.assert_allclose(xt.grad.numpy(), g @ weight.T, atol=1e-5)
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.einsum("bti,bto->io", x, g), atol=1e-4)
    if has_bias:
        np.testing.assert_allclose(layer.bias.grad.numpy(), g.sum((0, 1)), atol=1e-5)


def test_factors_are_rounded_and_weights_are_not(bfloat16: None) -> None:
    layer = CpuLinear(4, 4, bias_attr=False)
    weight = np.full((4, 4), 1.0 + 2.0**-10, np.float32)  # bfloat16 has seven bits behind the point
    layer.weight.set_value(weight)
    assert layer(tensor(np.ones((1, 4)))).numpy().tolist() == [[4.0] * 4]
    assert (layer.weight.numpy() == weight).all()


def test_a_frozen_weight_gets_no_gradient(bfloat16: None) -> None:
    layer = CpuLinear(4, 3)
    layer.weight.stop_gradient = True
    x = tensor(np.ones((2, 4)))
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit together"):
        kernel_matmul(tensor(np.ones((2, 3))), tensor(np.ones((2, 3))), precision="bfloat16")


@pytest.mark.parametrize("transposed", [True, False])
def test_token_scores_of_an_output_layer(transposed: bool, bfloat16: None) -> None:
    """Also for few tokens, whose logits Paddle's operators would compute in float32."""
    rng = np.random.default_rng(1)
    hidden, weight = coarse(rng, 7, 12), coarse(rng, 40, 12)
    labels = paddle.to_tensor(rng.integers(0, 40, 7))

    class Head:
        transpose_y = transposed

        class config:
            vocab_size = 40

    Head.weight = tensor(weight if transposed else weight.T)
    Head.weight.is_distributed = False
    assert exceeds_chunk(Head, 7)
    ht = tensor(hidden)
    logprobs, _, _ = linear_scores(ht, Head, labels)
    logits = hidden @ weight.T
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    chosen = np.eye(40)[labels.numpy()]
    np.testing.assert_allclose(logprobs.numpy(), np.log((probabilities * chosen).sum(-1)), atol=1e-5)
    logprobs.sum().backward()
    pull = chosen - probabilities
    np.testing.assert_allclose(ht.grad.numpy(), pull @ weight, atol=2e-2)  # here the factor `pull` was rounded
    of_weight = Head.weight.grad.numpy()
    np.testing.assert_allclose(of_weight if transposed else of_weight.T, pull.T @ hidden, atol=2e-2)


def test_without_kernels_bf16_is_refused_before_anything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "available", lambda: False)
    with pytest.raises(UserError, match=r"bf16 needs the C\+\+ kernels on a CPU.*remove the key"):
        cpu_layers.use_cpu_layers("bfloat16")
    with pytest.raises(UserError, match=r"rollout_quant_type needs the C\+\+ kernels"):
        cpu_layers.require_kernels("rollout_quant_type")
    assert current_precision() == "float32"


@pytest.mark.slow
def test_a_run_in_bf16_learns_what_float32_does_but_for_rounding(world: TinyWorld, tmp_path: Path) -> None:
    for name, bf16 in (("exact", "false"), ("rounded", "true")):
        settings = {"bf16": bf16, "learning_rate": "0.001", "temperature": "1.0", "logprob_gap_limit": "0.05"}
        run(one_rank(entry_command(world, tmp_path / name, **settings)))
    exact, rounded = (metrics_of(tmp_path / name) for name in ("exact", "rounded"))
    assert exact[0]["logprob_gap_mean"] < 1e-5
    # Engine and trainer round the same factors; 0.02 is what they would differ by if only one of them did.
    assert 0 < max(line["logprob_gap_mean"] for line in rounded) < 0.02
    before, after = (load_file(next(folder.glob("*.safetensors"))) for folder in (world.policy, tmp_path / "rounded"))
    assert {array.dtype for array in after.values()} == {np.dtype(np.float32)}
    assert any((before[name] != after[name]).any() for name in before)


@pytest.mark.slow
def test_rollouts_in_eight_bits_leave_training_in_float32_and_log_their_error(world: TinyWorld, tmp_path: Path) -> None:
    command = entry_command(world, tmp_path, rollout_quant_type="weight_only_int8", temperature="1.0")
    run(one_rank(command))
    lines = metrics_of(tmp_path)
    assert lines
    assert all(1e-5 < line["logprob_gap_mean"] < 0.05 for line in lines)
    assert all(abs(line["rollout_is_mean"] - 1) < 0.05 < 1 < line["rollout_is_max"] for line in lines)


@pytest.mark.parametrize(("key", "precision"), [("bf16", "bfloat16"), ("rollout_quant_type", "int8")])
def test_a_processor_without_dot_products_is_told_that_it_takes_longer(
    monkeypatch: pytest.MonkeyPatch, key: str, precision: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(install, "is_native", lambda asked: asked != precision)
    monkeypatch.setattr(install.logger, "warning", said.append)
    cpu_layers.require_kernels(key, precision)
    assert said == [
        f"{key}: this processor has no {precision} dot products, so its products take longer than float32's"
    ]
    cpu_layers.require_kernels(key, {"bfloat16": "int8", "int8": "bfloat16"}[precision])
    assert len(said) == 1


@pytest.mark.slow
def test_a_cold_start_in_bf16_has_other_losses_than_in_float32_but_not_by_much(
    world: TinyWorld, tmp_path: Path
) -> None:
    convert_to_sft(world.folder / "train.parquet", tmp_path / "sft.jsonl", "Tower")
    losses = {}
    for bf16 in ("false", "true"):
        out = tmp_path / bf16
        settings = {"model_name_or_path": str(world.policy), "train_datasets": str(tmp_path / "sft.jsonl")}
        settings |= {"output_dir": str(out), "max_steps": "3", "bf16": bf16, "init_from_config": "null"}
        settings |= {"tokenizer_name_or_path": "null", "report_to": "none", "logging_steps": "1"}
        overrides = [text for key, value in settings.items() for text in (f"--{key}", value)]
        run(one_rank([str(SCRIPTS / "run_sft.py"), str(CONFIGS / "sft_tiny_argument.yaml"), *overrides]))
        losses[bf16] = [line["loss"] for line in metrics_of(out) if "loss" in line]
    assert len(losses["true"]) == 3
    assert losses["true"] != losses["false"]
    np.testing.assert_allclose(losses["true"], losses["false"], rtol=0.02)


def test_eight_bits_are_for_rollouts_only() -> None:
    with pytest.raises(ValueError, match="precision 'int8' is none of float32, bfloat16"):
        set_precision("int8")


@pytest.mark.slow
def test_a_gap_above_the_limit_stops_a_run_in_one_sentence(world: TinyWorld, tmp_path: Path) -> None:
    command = one_rank(entry_command(world, tmp_path, bf16="true", logprob_gap_limit="1e-9"))
    done = run(command, expect=2)
    assert "more than logprob_gap_limit 1e-09" in done.stderr
