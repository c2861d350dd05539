"""The checks of `grrm doctor --gpu` in their own process: each GPU code path on a tiny random model, beside the CPU.

Rows come out one by one as JSON lines, the name of a check before its result, so that a crash tells where it was. On a
CPU the same checks run there in float32 against the reference: that tries the checks themselves, not a GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grrm.startup import configure_process, end_with_parent

configure_process()

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray

from grrm.engine import sampling
from grrm.engine.api import SamplingParams
from grrm.engine.paddle import gpu_sampling
from grrm.engine.paddle.gpu_decoder import FusedOperators, GpuDecoder
from grrm.models.packing import dense_mask
from grrm.models.token_scores import score_hidden

# Largest difference, in parts of the largest number, that rounding explains.
LIMITS = {"bfloat16": 0.05, "float32": 1e-4}
COLLECTIVE_S = 120
_VOCAB, _WIDTH, _HEADS, _KV_HEADS = 320, 128, 4, 2  # heads of 32 numbers, which the CUDA kernel takes
_FAILURES = (RuntimeError, ValueError, TypeError, OSError, AttributeError, ImportError, FloatingPointError)


@dataclass(frozen=True, slots=True)
class Row:
    """One check: the largest `difference` to the CPU's float32, in parts of its largest number, and its `limit`.

    Both are None for a check that did not run, and `problem` says why; "" where there is none.
    """

    name: str
    difference: float | None = None
    limit: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The device of the checks, "gpu" or "cpu", and the type of weights there.

    `operators` and `flashmask` replace Paddle's GPU-only operators; without them their checks do not run on a CPU.
    """

    device: str
    dtype: str
    operators: FusedOperators | None = None
    flashmask: Callable[..., Any] | None = None


class Reference:
    """A tiny model in float32 on the CPU, and one with the same weights on the target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        paddle.set_device("cpu")
        self.model = _build()
        paddle.set_device(target.device)
        self.copy = _build()
        if target.dtype != "float32":
            self.copy.to(dtype=target.dtype)
        self.rng = np.random.default_rng(3)

    def logits(self, tokens: list[int]) -> NDArray[np.float32]:
        """Logits [V] behind the tokens, on the CPU."""
        paddle.set_device("cpu")
        with paddle.no_grad():
            output = self.model(paddle.to_tensor([tokens]))
        paddle.set_device(self.target.device)
        logits_TV = (output[0] if isinstance(output, tuple) else output).reshape([len(tokens), -1])
        logits_V: NDArray[np.float32] = logits_TV[-1].numpy()
        return logits_V


def _build() -> Any:
    from grrm.paddlenlp_api.modeling import Qwen2Config, Qwen2ForCausalLM

    model = Qwen2ForCausalLM(
        Qwen2Config(
            hidden_size=_WIDTH,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=_HEADS,
            num_key_value_heads=_KV_HEADS,
            vocab_size=_VOCAB,
            max_position_embeddings=256,
        )
    )
    rng = np.random.default_rng(7)  # the same numbers on every device; biases and norms too, which start as constants
    for parameter in model.parameters():
        centre = 1.0 if parameter.ndim == 1 and "norm" in parameter.name else 0.0
        noise = rng.normal(centre, 0.1, parameter.shape).astype("float32")
        parameter.set_value(paddle.to_tensor(noise))
    model.eval()
    return model


def check_block_attention(reference: Reference) -> float:
    """Prompts of one and several blocks, shared by samples, and steps behind them, through the fused decoder."""
    rng, decoder = reference.rng, GpuDecoder(reference.copy, reference.target.operators)
    prompts = [rng.integers(0, _VOCAB, n).tolist() for n in (60, 64, 130, 1)]
    slots, sources = np.arange(5), np.array([0, 1, 2, 2, 3])
    cache = decoder.new_cache(len(slots), 150)
    lengths = np.array([len(prompt) for prompt in prompts])
    tokens = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    with paddle.no_grad():
        actual = [decoder.prefill(tokens, lengths, cache, slots, sources).numpy()]
        expected = [np.stack([reference.logits(prompt) for prompt in prompts])]
        samples = [list(prompts[source]) for source in sources]
        for _ in range(3):
            sampled = rng.integers(0, _VOCAB, len(samples))
            positions = np.array([len(sample) for sample in samples])
            for sample, token in zip(samples, sampled, strict=True):
                sample.append(int(token))
            actual.append(decoder.decode(slots, sampled, positions, cache).numpy())
            expected.append(np.stack([reference.logits(sample) for sample in samples]))
    return _difference(np.concatenate(actual), np.concatenate(expected))


def check_flashmask(reference: Reference) -> float:
    """FlashMask's one-column form on a row of a prompt and two responses that share it, beside a dense mask."""
    target, length, prompt, first = reference.target, 96, 40, 70
    shape = [1, length, _HEADS, 32]
    query, key, value = (reference.rng.normal(0, 1, shape).astype("float32") for _ in range(3))
    # A column of the prompt is seen to the end, one of a response to the end of that response.
    ends = np.where(np.arange(length) < prompt, length, np.where(np.arange(length) < first, first, length))
    flashmask = target.flashmask or F.flashmask_attention
    on_device = [paddle.to_tensor(tensor).astype(target.dtype) for tensor in (query, key, value)]
    indices = paddle.to_tensor(ends.reshape(1, 1, length, 1).astype("int32"))
    actual = flashmask(*on_device, startend_row_indices=indices, causal=True)
    actual = (actual[0] if isinstance(actual, tuple) else actual).astype("float32").numpy()
    ranges = np.stack([np.zeros(length), np.full(length, prompt), np.where(np.arange(length) < first, prompt, first)])
    ranges[1:, :prompt] = 0  # the prompt's own segment begins with it
    paddle.set_device("cpu")
    mask = dense_mask(paddle.to_tensor(ranges.reshape(3, 1, length).astype("int32"))).numpy()[0]
    paddle.set_device(target.device)
    scores = np.einsum("qhd,khd->hqk", query[0], key[0]) / np.sqrt(32)
    weights = np.exp(np.where(mask, scores, -np.inf) - scores.max())
    expected = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), value[0])
    return _difference(actual[0], expected)


def check_sampling(reference: Reference) -> float:
    """The share of 512 draws that differ from NumPy's with the same random numbers: those at a border may."""
    logits = reference.rng.normal(0, 3, (512, 2000)).astype("float32")
    uniforms, generated = reference.rng.random(512), np.zeros(512, np.int64)
    params = SamplingParams(max_new_tokens=4, temperature=0.8, top_k=50, top_p=0.9)
    actual, _ = gpu_sampling.sample_tokens(paddle.to_tensor(logits), params, uniforms, generated)
    expected, _ = sampling.sample_tokens(logits, params, uniforms, generated)
    return float((actual != expected).mean())


def check_token_scores(reference: Reference) -> float:
    """Log-probabilities of tokens from hidden states, and the gradient of their sum."""
    hidden = reference.rng.normal(0, 1, (64, _WIDTH)).astype("float32")
    labels = reference.rng.integers(0, _VOCAB, 64)
    both = []
    for device, model, dtype in (
        ("cpu", reference.model, "float32"),
        (reference.target.device, reference.copy, reference.target.dtype),
    ):
        paddle.set_device(device)
        hidden_NH = paddle.to_tensor(hidden).astype(dtype)
        hidden_NH.stop_gradient = False
        logprobs_N = score_hidden(hidden_NH, model.lm_head, paddle.to_tensor(labels)).logprobs_N
        logprobs_N.sum().backward()
        both.append((logprobs_N.astype("float32").numpy(), hidden_NH.grad.astype("float32").numpy()))
        model.clear_gradients()
    return max(_difference(actual, expected) for expected, actual in zip(*both, strict=True))


def check_training_step(reference: Reference) -> float:
    """The loss of a batch before and after two steps of AdamW, at level O2 with master weights on a GPU."""
    tokens = reference.rng.integers(0, _VOCAB, (4, 32))
    paddle.set_device("cpu")
    expected = _losses(tokens, "float32")
    paddle.set_device(reference.target.device)
    actual = _losses(tokens, reference.target.dtype)
    return _difference(actual, expected)


def _losses(tokens: NDArray[np.int64], dtype: str) -> NDArray[np.float64]:
    model = _build()
    model.train()
    optimizer = paddle.optimizer.AdamW(learning_rate=1e-3, parameters=model.parameters())
    is_mixed = dtype != "float32"
    if is_mixed:
        model, optimizer = paddle.amp.decorate(
            models=model, optimizers=optimizer, level="O2", dtype=dtype, master_weight=True, master_grad=True
        )
    inputs, losses = paddle.to_tensor(tokens), []
    for _ in range(3):
        with paddle.amp.auto_cast(enable=is_mixed, level="O2", dtype="bfloat16"):
            output = model(inputs)
            logits = (output[0] if isinstance(output, tuple) else output).astype("float32")
            loss = F.cross_entropy(logits[:, :-1].reshape([-1, _VOCAB]), inputs[:, 1:].reshape([-1]))
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    return np.array(losses)


def check_collective(reference: Reference) -> float:
    """Sums and gathers over a rank per GPU (NCCL), or two ranks on the CPU (gloo), started by Paddle's launcher."""
    n_ranks = paddle.device.cuda.device_count() if reference.target.device == "gpu" else 2
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(n_ranks)]
    with tempfile.TemporaryDirectory() as logs:
        command = [*launcher, "--log_dir", logs, str(Path(__file__).resolve()), "--rank", reference.target.device]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COLLECTIVE_S, check=False, preexec_fn=end_with_parent
        )  # a doctor that has waited long enough kills this process, and no launcher may outlive it
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise RuntimeError(f"{n_ranks} ranks: {last[0]}")
    return 0.0


def join_collective(device: str) -> None:
    """One of those ranks. Raises RuntimeError for a wrong sum or list."""
    import paddle.distributed as dist

    paddle.set_device(device)
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    total = paddle.to_tensor([float(rank + 1)])
    dist.all_reduce(total)
    gathered: list[Any] = []
    dist.all_gather(gathered, paddle.to_tensor([rank]))
    if float(total) != size * (size + 1) / 2 or [int(other) for other in gathered] != list(range(size)):
        raise RuntimeError(f"rank {rank} of {size} got the sum {float(total)} and the list {gathered}")


CHECKS: dict[str, Callable[[Reference], float]] = {
    "block attention": check_block_attention,
    "FlashMask": check_flashmask,
    "sampling": check_sampling,
    "token scores": check_token_scores,
    "training step": check_training_step,
    "collective": check_collective,
}
_GPU_ONLY = {"block attention": "operators", "FlashMask": "flashmask"}  # and what of a target replaces it


def run_check(name: str, reference: Reference) -> Row:
    """The row of a check; an error of the device is its problem."""
    target = reference.target
    if target.device == "cpu" and name in _GPU_ONLY and getattr(target, _GPU_ONLY[name]) is None:
        return Row(name, problem="not run: Paddle has this operator on GPUs only")
    if name == "collective" and target.device == "gpu" and paddle.device.cuda.device_count() == 1:
        return Row(name, problem="not run: there is no second GPU")
    limit = {"sampling": 0.01, "collective": 0.0}.get(name, LIMITS[target.dtype])
    try:
        difference = CHECKS[name](reference)
    except (*_FAILURES, subprocess.TimeoutExpired) as error:
        return Row(name, problem=(str(error).strip().splitlines() or [type(error).__name__])[-1].strip())
    return Row(name, difference, limit, "" if difference <= limit else "more than rounding explains")


def _difference(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """NaN where a number is not finite, which no limit allows."""
    difference = float(np.abs(actual - expected).max() / np.abs(expected).max())
    return difference if np.isfinite(actual).all() else float("nan")


def main() -> None:
    """Print the device, then each check and its row."""
    has_gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    target = Target("gpu", "bfloat16") if has_gpu else Target("cpu", "float32")
    name = paddle.device.cuda.get_device_name(0) if has_gpu else ""
    print(json.dumps({"device": target.device, "name": name, "paddle": paddle.__version__}), flush=True)
    reference = Reference(target)
    for check in CHECKS:
        print(json.dumps({"begins": check}), flush=True)
        print(json.dumps(asdict(run_check(check, reference))), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        join_collective(sys.argv[2])
    else:
        main()
