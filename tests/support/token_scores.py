"""Token scores by the formulas, in float64, and the form of an output layer, whatever this machine would take."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from grrm.models import output_layer
from grrm.models.cpu_kernels import available
from grrm_csrc.blas import sgemm_address

FORMS = ("kernels", "operators")


def use_form(monkeypatch: pytest.MonkeyPatch, form: str) -> str:
    """Take this form; the test is skipped where there are no kernels."""
    if form == "kernels" and (not available() or sgemm_address() is None):
        pytest.skip("needs a compiler and the BLAS of paddle's wheel")
    if form == "operators":
        monkeypatch.setattr(output_layer, "is_fused", lambda _: False)
    return form


def head_of(weight: np.ndarray, transposed: bool = True) -> SimpleNamespace:
    """An LM head with the weights [V, H], which it has transposed or not."""
    made = paddle.to_tensor(weight.astype("float32") if transposed else weight.T.astype("float32").copy())
    made.stop_gradient = False
    made.is_distributed = False
    return SimpleNamespace(weight=made, transpose_y=transposed, config=SimpleNamespace(vocab_size=len(weight)))


def set_chunk_tokens(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    for layer in (output_layer.KernelOutputLayer, output_layer.OperatorOutputLayer):
        monkeypatch.setattr(layer, "chunk_tokens", tokens)


def token_scores(
    logits_NV: np.ndarray, labels_N: np.ndarray, g_3N: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Log-probability of the labels, entropy and log-normaliser; and what `g_3N` of each gives the logits."""
    top_N1 = logits_NV.max(-1, keepdims=True)
    lse_N1 = top_N1 + np.log(np.exp(logits_NV - top_N1).sum(-1, keepdims=True))
    logp_NV = logits_NV - lse_N1
    p_NV, rows = np.exp(logp_NV), np.arange(len(labels_N))
    entropy_N = -(p_NV * logp_NV).sum(-1)
    onehot_NV = np.zeros_like(p_NV)
    onehot_NV[rows, labels_N] = 1
    of_logprob, of_entropy, of_lse = (g_N[:, None] for g_N in g_3N)
    gradient_NV = of_logprob * (onehot_NV - p_NV) - of_entropy * p_NV * (logp_NV + entropy_N[:, None]) + of_lse * p_NV
    return (logp_NV[rows, labels_N], entropy_N, lse_N1[:, 0]), gradient_NV
