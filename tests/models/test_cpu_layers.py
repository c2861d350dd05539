"""The CPU forms of PaddleNLP's layers change speed, not results."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

COMPARE = """
import json, sys
import numpy as np
import paddle
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2
from grrm.models import cpu_layers
from grrm.models.qwen2_moe import Qwen2MoeConfig, Qwen2MoeForCausalLM

paddle.set_device("cpu")
paddle.seed(5)
config, model_class, modeling = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, qwen2),
    "llama": (LlamaConfig, LlamaForCausalLM, llama),
    "qwen2_moe": (Qwen2MoeConfig, Qwen2MoeForCausalLM, qwen2),
}[sys.argv[1]]
sizes = config(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3,
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24,
)
model = model_class(sizes)
for parameter in model.parameters():
    parameter.set_value(parameter + 0.1 * paddle.randn(parameter.shape))  # biases and norms are not their defaults
rng = np.random.default_rng(0)
ids = paddle.to_tensor(rng.integers(0, 50, (3, 9)))
weights = paddle.to_tensor(rng.normal(size=(3, 9, 50)).astype("float32"))
padded = paddle.to_tensor(np.array([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [0] * 5]))
positions = paddle.to_tensor(np.stack([np.arange(9), np.arange(9)[::-1], np.arange(9) // 2]))
cases = {"plain": {}, "padded": {"attention_mask": padded}, "positions": {"position_ids": positions}}


def outcome(model, options):
    model.clear_gradients()
    logits = model(ids, **options)
    logits = logits[0] if isinstance(logits, tuple) else logits
    kept = logits * padded.unsqueeze(-1).astype("float32") if "attention_mask" in options else logits
    (kept * weights).sum().backward()
    return [kept.numpy(), *(parameter.grad.numpy() for parameter in model.parameters())]


before = {name: outcome(model, options) for name, options in cases.items()}
gate = modeling if sys.argv[1] == "llama" else modeling.fusion_ops
originals = {modeling.apply_rotary_pos_emb, modeling.scaled_dot_product_attention, gate.swiglu}
cpu_layers.use_cpu_layers()
assert not originals & {modeling.apply_rotary_pos_emb, modeling.scaled_dot_product_attention, gate.swiglu}
same = model_class(sizes)  # layers keep the attention that was there when they were built
same.set_state_dict(model.state_dict())
after = {name: outcome(same, options) for name, options in cases.items()}
print(json.dumps({
    name: [float(np.abs(a - b).max() / (np.abs(b).max() + 1e-12)) for a, b in zip(after[name], before[name])]
    for name in cases
}))
print(json.dumps(float(np.abs(before["plain"][0] - before["positions"][0]).max())))
"""


@pytest.mark.parametrize(
    ("family", "kernels"),
    [
        ("qwen2", "on"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("qwen2", "off"), ("qwen2_moe", "on"), ("llama", "on"), ("llama", "off")]
        ),
    ],
)
def test_logits_and_gradients_equal_the_originals(family: str, kernels: str) -> None:
    command = [sys.executable, "-c", COMPARE, family]
    environment = os.environ | {"GRRM_KERNELS": kernels}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    differences, position_effect = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    for name, values in differences.items():
        assert len(values) > 20, name
        assert max(values) < 2e-4, name
    assert position_effect > 0.1


def test_llama_with_alibi_keeps_the_attention_that_knows_it() -> None:
    import paddle
    from paddlenlp.transformers.llama import modeling as llama

    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.cpu_layers.attention import llama_attention, stock_llama_attention
    from grrm.models.policy import policy_class

    use_cpu_layers()
    cls = policy_class("llama")
    sizes = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    model = cls(cls.config_class(**sizes, num_key_value_heads=1, num_hidden_layers=1, alibi=True))
    assert not model.reads_ranges
    layer = model.llama.layers[0].self_attn
    assert layer.attn_func is llama_attention is llama.scaled_dot_product_attention
    ids = paddle.arange(12).reshape([2, 6])
    ours = model(ids)[0]
    layer.attn_func = stock_llama_attention
    assert paddle.equal_all(model(ids)[0], ours)
    layer.attn_func = lambda *args, alibi, **options: llama_attention(*args, **options)
    assert not paddle.allclose(model(ids)[0], ours)
