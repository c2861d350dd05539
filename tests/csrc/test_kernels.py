"""The kernels against plain NumPy in float64, values and gradients, for shapes that are and are not whole vectors."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.token_scores import token_scores

from grrm.models.cpu_layers.operators import attention, available, rms_norm, rotate, score_tokens, swiglu
from grrm.models.packing import dense_mask, pack_rows

pytestmark = pytest.mark.skipif(not available(), reason="there is no C++ compiler here")
EPSILON = 1e-6


def tensor(array) -> paddle.Tensor:
    made = paddle.to_tensor(np.asarray(array, dtype=np.float32))
    made.stop_gradient = False
    return made


def pull(output: paddle.Tensor, weights: np.ndarray, *inputs: paddle.Tensor) -> list[np.ndarray]:
    (output * paddle.to_tensor(weights.astype(np.float32))).sum().backward()
    return [one.grad.numpy() for one in inputs]


def slopes(function, weights: np.ndarray, *inputs: np.ndarray, step: float = 1e-5) -> list[np.ndarray]:
    """Central differences of sum(function(*inputs) * weights) in float64."""
    found = []
    for number, one in enumerate(inputs):
        gradient = np.zeros_like(one)
        for place in np.ndindex(one.shape):
            both = []
            for sign in (1, -1):
                moved = [array.copy() for array in inputs]
                moved[number][place] += sign * step
                both.append(float((function(*moved) * weights).sum()))
            gradient[place] = (both[0] - both[1]) / (2 * step)
        found.append(gradient)
    return found


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w


def gated(gate, up):
    return gate / (1 + np.exp(-gate)) * up


def attended(q, k, v, mask_BTT):
    """Reference over [B, T, H, D]; rows of the mask without a True are padding, whose output is 0."""
    group = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, group, axis=2) for x in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(mask_BTT[:, None], scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isfinite(top), top, 0))
    weights = raised / np.maximum(raised.sum(-1, keepdims=True), 1e-300)
    return np.einsum("bhij,bjhd->bihd", weights, v)


@pytest.mark.parametrize("width", [3, 16, 50])
def test_rms_norm(width):
    rng = np.random.default_rng(width)
    x, w, g = rng.normal(size=(5, width)), rng.normal(size=width), rng.normal(size=(5, width))
    xt, wt = tensor(x), tensor(w)
    y = rms_norm(xt, wt, EPSILON)
    np.testing.assert_allclose(y.numpy(), norm(x, w), atol=2e-6)
    for found, expected in zip(pull(y, g, xt, wt), slopes(norm, g, x, w), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_norm_of_zeros_is_zero_and_has_a_finite_gradient():
    x, w = tensor(np.zeros((2, 4))), tensor(np.ones(4))
    y = rms_norm(x, w, EPSILON)
    assert y.numpy().tolist() == np.zeros((2, 4)).tolist()
    assert np.isfinite(pull(y, np.ones((2, 4)), x, w)[0]).all()


def test_swiglu_also_where_the_exponential_would_overflow():
    rng = np.random.default_rng(0)
    gate, up, g = rng.normal(size=(7, 9)) * 4, rng.normal(size=(7, 9)), rng.normal(size=(7, 9))
    gate[0, :4] = [-1e4, 1e4, -90.0, 90.0]
    gt, ut = tensor(gate), tensor(up)
    y = swiglu(gt, ut)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(y.numpy(), gated(gate, up), rtol=1e-5, atol=1e-5)
        expected = slopes(gated, g, gate, up)
    for found, slope in zip(pull(y, g, gt, ut), expected, strict=True):
        np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-4)


def test_rotation_and_its_gradient_which_is_the_rotation_back():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 3, 8))
    angles = rng.normal(size=(6, 4))
    cos, sin = (np.concatenate([table, table], -1) for table in (np.cos(angles), np.sin(angles)))
    positions = rng.integers(0, 6, (2, 5))
    c, s = cos[positions][:, :, None], sin[positions][:, :, None]
    expected = x * c + np.concatenate([-x[..., 4:], x[..., :4]], -1) * s
    xt = tensor(x)
    y = rotate(xt, *(paddle.to_tensor(t.astype("float32")) for t in (cos, sin)), paddle.to_tensor(positions))
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-6)
    (back,) = pull(y, expected, xt)
    np.testing.assert_allclose(back, x, atol=2e-6)


@pytest.mark.parametrize("vocab", [2, 33, 512])
def test_token_scores_and_their_gradients(vocab):
    rng = np.random.default_rng(vocab)
    logits, labels, g_3N = rng.normal(size=(4, vocab)) * 5, rng.integers(0, vocab, 4), rng.normal(size=(3, 4))
    logits[0, 0] = 300.0  # far above the rest: probabilities of 0 and 1
    lt = tensor(logits)
    found = score_tokens(lt, paddle.to_tensor(labels))
    wanted, gradient_NV = token_scores(logits, labels, g_3N)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-5)
    loss = sum((one * tensor(g)).sum() for one, g in zip(found, g_3N, strict=True))
    loss.backward()
    np.testing.assert_allclose(lt.grad.numpy(), gradient_NV, atol=2e-5)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_loss_of_one_score_alone_has_the_gradient_of_that_score(number):
    rng = np.random.default_rng(number)
    logits, labels, g_3N = rng.normal(size=(4, 9)), rng.integers(0, 9, 4), np.zeros((3, 4))
    g_3N[number] = rng.normal(size=4)
    lt = tensor(logits)
    (score_tokens(lt, paddle.to_tensor(labels))[number] * tensor(g_3N[number])).sum().backward()
    np.testing.assert_allclose(lt.grad.numpy(), token_scores(logits, labels, g_3N)[1], atol=2e-6)


def test_a_logit_of_minus_infinity_takes_no_part():
    logits, labels = np.random.default_rng(1).normal(size=(2, 6)), paddle.to_tensor([4, 0])
    banned = np.full((2, 9), -np.inf)
    banned[:, [0, 2, 3, 5, 7, 8]] = logits
    plain, masked = tensor(logits), tensor(banned)
    found = score_tokens(plain, labels), score_tokens(masked, paddle.to_tensor([7, 0]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
    sum((a + b).sum() for a, b in zip(*found, strict=True)).backward()
    np.testing.assert_allclose(masked.grad.numpy()[:, [0, 2, 3, 5, 7, 8]], plain.grad.numpy(), atol=1e-7)
    assert (masked.grad.numpy()[:, [1, 4, 6]] == 0).all()


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    width=st.sampled_from([2, 8, 16, 24, 48, 64]),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    longest=st.integers(1, 40),
)
def test_attention_over_packed_rows(seed, width, key_heads, group, longest):
    rng = np.random.default_rng(seed)
    prompts = [[1] * rng.integers(1, longest + 1) for _ in range(3)]
    members = [prompt for prompt in prompts for _ in range(rng.integers(1, 4))]
    answers = [[2] * rng.integers(1, longest + 1) for _ in members]
    index = pack_rows(members, answers, 0, int(rng.integers(1, 3 * longest)))
    visible = index.attention_ranges_3BT
    batch, length = index.input_ids.shape
    padding = visible.numpy()[2] > np.arange(length)
    mask = dense_mask(visible).numpy() & ~padding[:, :, None]
    q, g = rng.normal(size=(2, batch, length, key_heads * group, width)) * 2
    k, v = rng.normal(size=(2, batch, length, key_heads, width)) * 2
    qt, kt, vt = tensor(q), tensor(k), tensor(v)
    out = attention(qt, kt, vt, visible)
    np.testing.assert_allclose(out.numpy(), attended(q, k, v, mask), atol=2e-5)
    gradients = pull(out, g, qt, kt, vt)
    # The slope along a random direction, in float64.
    directions = [rng.normal(size=x.shape) for x in (q, k, v)]
    step = 1e-5
    ends = [
        (attended(*(x + sign * step * d for x, d in zip((q, k, v), directions, strict=True)), mask) * g).sum()
        for sign in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    found = sum(float((x * d).sum()) for x, d in zip(gradients, directions, strict=True))
    scale = sum(float(np.abs(x * d).sum()) for x, d in zip(gradients, directions, strict=True))
    assert abs(found - expected) <= 1e-5 * max(scale, 1.0)


def test_frozen_inputs_get_no_gradient():
    x, w, frozen, frozen_w = tensor(np.ones((2, 4))), tensor(np.ones(4)), paddle.ones([2, 4]), paddle.ones([4])
    rms_norm(frozen, w, EPSILON).sum().backward()
    rms_norm(x, frozen_w, EPSILON).sum().backward()
    up = tensor(np.ones((2, 4)))
    swiglu(frozen, up).sum().backward()
    q, kv = tensor(np.ones((1, 3, 2, 4))), paddle.ones([1, 3, 1, 4])
    attention(q, kv, kv, paddle.zeros([3, 1, 3], dtype="int32")).sum().backward()
    assert all(one.grad is not None for one in (x, w, up, q))
    assert all(one.grad is None for one in (frozen, frozen_w, kv))


@pytest.mark.parametrize("labels", [[0, 5], [-100, 1]])
def test_labels_outside_the_vocabulary_are_an_error_not_memory_outside(labels):
    with pytest.raises(ValueError, match="of a vocabulary of 5"):
        score_tokens(tensor(np.zeros((2, 5))), paddle.to_tensor(labels))


def test_tensors_of_another_type_are_refused():
    with pytest.raises(OSError, match="grrm_score_tokens takes indices of type int64, not int32"):
        score_tokens(tensor(np.zeros((1, 5))), paddle.to_tensor([0], dtype="int32"))
    with pytest.raises(OSError, match="grrm_swiglu takes float32 on the CPU, not float64"):
        swiglu(*(paddle.ones([2], dtype="float64") for _ in range(2)))


THREADS = """
import numpy as np, paddle
from grrm.models.cpu_layers.operators import attention, rms_norm
rng = np.random.default_rng(0)
q, k, v, x, w = (
    paddle.to_tensor(rng.normal(size=s).astype("float32"))
    for s in [(3, 50, 4, 16), (3, 50, 2, 16), (3, 50, 2, 16), (60, 32), (32,)]
)
for t in (q, k, v, x, w):
    t.stop_gradient = False
(attention(q, k, v, paddle.zeros([3, 3, 50], dtype="int32")) ** 2).sum().backward()
(rms_norm(x, w, 1e-6) ** 2).sum().backward()
print(" ".join(t.grad.numpy().tobytes().hex() for t in (q, k, v, x)))
print(w.grad.numpy().tolist())
"""


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    outputs = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=600, check=True)
        outputs.append(done.stdout.splitlines())
    assert len({exact for exact, _ in outputs}) == 1
    sums = [json.loads(summed) for _, summed in outputs]  # over rows, one partial sum a thread
    np.testing.assert_allclose(sums[1:], sums[:1] * 2, rtol=1e-5, atol=1e-4)
