"""Qwen3 as transformers computes it: tests/golden/models/qwen3 is what record.py beside it wrote."""

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
from grrm.models.export import export_policy
from grrm.models.policy import load_policy

GOLDEN = Path(__file__).parents[1] / "golden/models/qwen3"
RECORDED = json.loads((GOLDEN / "logits.json").read_text())
TOKENS = paddle.to_tensor(RECORDED["tokens"])


def test_logits_are_those_of_transformers():
    output = load_causal_lm(GOLDEN)(TOKENS)
    logits = output[0] if isinstance(output, tuple) else output
    np.testing.assert_allclose(logits.numpy(), RECORDED["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("use_kernels", [False, True])
def test_the_engine_writes_what_transformers_finds_most_likely(use_kernels):
    engine = PaddleEngine.from_pretrained(GOLDEN, use_kernels=use_kernels)
    greedy = SamplingParams(max_new_tokens=1, temperature=0)
    (done,) = engine.generate([RECORDED["tokens"][0]], greedy)
    last = np.array(RECORDED["logits"][0][-1])
    assert done.token_ids == [int(last.argmax())]
    assert done.logprobs[0] == pytest.approx(last.max() - np.log(np.exp(last).sum()), abs=1e-5)


def gradients(recompute):
    policy = load_policy(GOLDEN)
    policy.train()
    if recompute:
        policy.recompute_enable()
    found = policy(TOKENS, positions_N=paddle.arange(TOKENS.size))
    logits = paddle.matmul(found.hidden_NH[:-1], policy.lm_head.weight, transpose_y=True)
    paddle.nn.functional.cross_entropy(logits, TOKENS.reshape([-1])[1:]).backward()
    return {name: parameter.grad.numpy() for name, parameter in policy.named_parameters()}


def test_every_parameter_learns_and_recompute_changes_nothing():
    plain, recomputed = gradients(recompute=False), gradients(recompute=True)
    assert sum("q_norm" in name or "k_norm" in name for name in plain) == 4
    for name, gradient in plain.items():
        assert np.abs(gradient).max() > 0, name
        np.testing.assert_allclose(recomputed[name], gradient, rtol=1e-5, atol=1e-7)


def test_saved_and_exported_it_is_the_checkpoint_that_was_read(tmp_path):
    train_bpe(["a tokenizer is exported with a model"], tmp_path / "run", 270)
    load_policy(GOLDEN).save_pretrained(str(tmp_path / "run"), safe_serialization=True)
    export_policy(tmp_path / "run", tmp_path / "hf")
    stored, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path / "hf", GOLDEN))
    assert stored.keys() == wanted.keys()
    for name, numbers in wanted.items():
        np.testing.assert_array_equal(stored[name], numbers)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert (config["architectures"], config["model_type"], config["head_dim"]) == (["Qwen3ForCausalLM"], "qwen3", 6)
    assert config["rope_theta"] == 5000.0


@pytest.mark.parametrize("setting", ["attention_bias", "fuse_attention_qkv"])
def test_settings_without_layers_are_refused(tmp_path, setting):
    shutil.copytree(GOLDEN, tmp_path / "model")
    config = json.loads((GOLDEN / "config.json").read_text()) | {setting: True}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"{setting} is true"):
        load_causal_lm(tmp_path / "model")
