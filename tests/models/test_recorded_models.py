"""Models that PaddleNLP lacks, as transformers computes them: record.py wrote the folders of tests/golden/models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file

from grrm.data.bpe import train_bpe
from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models.checkpoint import load_causal_lm
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.export import export_policy
from grrm.models.policy import load_policy

MODELS = Path(__file__).parents[1] / "golden/models"


@pytest.fixture(params=["qwen3", "qwen2_moe"])
def golden(request):
    return MODELS / request.param


@pytest.fixture
def recorded(golden):
    return json.loads((golden / "logits.json").read_text())


def test_logits_are_those_of_transformers(golden, recorded):
    output = load_causal_lm(golden)(paddle.to_tensor(recorded["tokens"]))
    logits = output[0] if isinstance(output, tuple) else output
    np.testing.assert_allclose(logits.numpy(), recorded["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("use_kernels", [False, True])
def test_the_engine_writes_what_transformers_finds_most_likely(golden, recorded, use_kernels):
    engine = PaddleEngine.from_pretrained(golden, use_kernels=use_kernels)
    greedy = SamplingParams(max_new_tokens=1, temperature=0)
    (done,) = engine.generate([recorded["tokens"][0]], greedy)
    last = np.array(recorded["logits"][0][-1])
    assert done.token_ids == [int(last.argmax())]
    assert done.logprobs[0] == pytest.approx(last.max() - np.log(np.exp(last).sum()), abs=1e-5)


def gradients(golden, tokens, recompute):
    policy = load_policy(golden)
    policy.train()
    if recompute:
        policy.recompute_enable()
    found = policy(tokens, positions_N=paddle.arange(tokens.size))
    logits = paddle.matmul(found.hidden_NH[:-1], policy.lm_head.weight, transpose_y=policy.config.tie_word_embeddings)
    paddle.nn.functional.cross_entropy(logits, tokens.reshape([-1])[1:]).backward()
    return {name: parameter.grad.numpy() for name, parameter in policy.named_parameters()}


@pytest.mark.parametrize("layers", ["stock", "ours"])
def test_every_parameter_learns_and_recompute_changes_nothing(golden, recorded, layers):
    if layers == "ours":
        use_cpu_layers()
    tokens = paddle.to_tensor(recorded["tokens"])
    plain, recomputed = gradients(golden, tokens, recompute=False), gradients(golden, tokens, recompute=True)
    for name, gradient in plain.items():
        assert np.abs(gradient).max() > 0 or ".experts." in name, name
        np.testing.assert_allclose(recomputed[name], gradient, rtol=1e-5, atol=1e-7)


def test_saved_and_exported_it_is_the_checkpoint_that_was_read(golden, tmp_path):
    train_bpe(["a tokenizer is exported with a model"], tmp_path / "run", 270)
    load_policy(golden).save_pretrained(str(tmp_path / "run"), safe_serialization=True)
    export_policy(tmp_path / "run", tmp_path / "hf")
    stored, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path / "hf", golden))
    assert stored.keys() == wanted.keys()
    for name, numbers in wanted.items():
        np.testing.assert_array_equal(stored[name], numbers)
    config, original = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "hf", golden))
    assert config["rope_theta"] == 5000.0
    sizes = {"head_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"}
    for name in {"architectures", "model_type", "shared_expert_intermediate_size", *sizes} & original.keys():
        assert config[name] == original[name]


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        ("qwen3", "attention_bias", True),
        ("qwen3", "fuse_attention_qkv", True),
        ("qwen2_moe", "fuse_attention_ffn", True),
        ("qwen2_moe", "mlp_only_layers", [0]),
        ("qwen2_moe", "decoder_sparse_step", 2),
        ("qwen2_moe", "num_experts_per_tok", 6),
    ],
)
def test_settings_without_layers_are_refused(tmp_path, kind, setting, value):
    shutil.copytree(MODELS / kind, tmp_path / "model")
    config = json.loads((MODELS / kind / "config.json").read_text()) | {setting: value}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"{setting} (is|exceeds)"):
        load_causal_lm(tmp_path / "model")


def test_an_expert_that_no_token_goes_to_has_a_gradient_of_zeros():
    policy = load_policy(MODELS / "qwen2_moe")  # data ranks add up gradients, which each of them has to have
    policy(paddle.to_tensor([[7]]), positions_N=paddle.arange(1)).hidden_NH.sum().backward()
    for layer in policy.qwen2.layers:
        largest = [float(expert.down_proj.weight.grad.abs().max()) for expert in layer.mlp.experts]
        assert sorted(number > 0 for number in largest) == [False] * 3 + [True] * 2
