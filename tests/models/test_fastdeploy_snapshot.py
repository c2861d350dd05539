"""Weights for FastDeploy: the names, shapes and order of columns of its own layers, in the files that it reads.

What it expects is in tests/support/fastdeploy_weights.py, with the sources that it follows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.fastdeploy_weights import Worker, qwen2_shapes, read_safetensors, split_qwen2

from grrm.errors import UserError
from grrm.models.checkpoint import TIED_HEAD
from grrm.models.fastdeploy_snapshot import snapshot_weights, write_snapshot


def write(model: Any, folder: Path, step: int = 0) -> None:
    config = model.config
    served = snapshot_weights(config.model_type, model.state_dict(), is_tied=config.tie_word_embeddings)
    write_snapshot(folder, served, step)


def rounded(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("bfloat16").astype("float32").numpy()


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("gpu", [0, 7, 15])
def test_a_worker_on_any_gpu_reads_every_parameter_of_a_qwen2(
    tie: bool, gpu: int, make_model: Any, tmp_path: Path
) -> None:
    policy = make_model(tie_word_embeddings=tie)
    config = policy.config.to_dict()
    write(policy, tmp_path)
    worker = Worker(tmp_path, qwen2_shapes(config), gpu)
    worker.start()
    again = split_qwen2(worker.weights, config)
    ours = policy.state_dict()
    assert again.keys() == ours.keys()
    for name, tensor in ours.items():
        expected = rounded(tensor)
        assert (again[name] == (expected.T if tie and name == TIED_HEAD else expected)).all(), name


def test_a_step_replaces_the_one_before_while_servers_hold_its_weights(make_model: Any, tmp_path: Path) -> None:
    policy = make_model()
    shapes = qwen2_shapes(policy.config.to_dict())
    write(policy, tmp_path, 3)
    held = Worker(tmp_path, shapes, gpu=2)
    held.start()
    before = held.weights["qwen2.norm.weight"].copy()
    policy.qwen2.norm.weight.set_value(policy.qwen2.norm.weight + 1)
    (tmp_path / "model_state.tp0.2.part1.pdparams").write_bytes(b"of another program, which FastDeploy would prefer")
    write(policy, tmp_path, 4)
    assert (held.weights["qwen2.norm.weight"] == before).all()
    held.sleep("weight")
    held.wakeup("weight")
    assert held.steps == ["step-3", "step-4"]
    assert (held.weights["qwen2.norm.weight"] == rounded(policy.qwen2.norm.weight)).all()
    assert not list(tmp_path.glob("*.part*")) + list(tmp_path.glob(".*"))


def test_paddle_reads_the_file_as_fastdeploy_asks_it_to(make_model: Any, tmp_path: Path) -> None:
    write(make_model(), tmp_path)
    file = tmp_path / "model_state.tp0.1.pdparams"
    before = paddle.get_flags("FLAGS_use_stride_kernel")
    paddle.set_flags({"FLAGS_use_stride_kernel": True})  # Paddle's default
    try:
        by_paddle = paddle.load(str(file), safetensors=True)
    finally:
        paddle.set_flags(before)
    with paddle.LazyGuard():  # as FastDeploy makes its network
        parameter = paddle.nn.Layer().create_parameter([48, 160], dtype="bfloat16")
    of_file = by_paddle["qwen2.layers.0.mlp.up_gate_proj.weight"]
    assert (of_file.shape, of_file.stride()) == (parameter.shape, parameter.stride())
    of_file._share_buffer_to(parameter)
    assert parameter._is_initialized()
    _, by_hand = read_safetensors(file)
    assert by_paddle.keys() == by_hand.keys()
    for name, tensor in by_paddle.items():
        assert tensor.dtype == paddle.bfloat16
        assert (tensor.astype("float32").numpy() == by_hand[name][1]).all()


def test_a_folder_as_the_trainer_saves_it_starts_no_server(make_model: Any, tmp_path: Path) -> None:
    policy = make_model()
    policy.save_pretrained(str(tmp_path), safe_serialization=True)
    with pytest.raises(FileNotFoundError, match=r"No snapshot found for model_state\.tp0\.0"):
        Worker(tmp_path, qwen2_shapes(json.loads((tmp_path / "config.json").read_text()))).start()


def test_norms_of_queries_and_keys_have_the_names_of_every_release(make_model: Any) -> None:
    policy = make_model("qwen3", head_dim=8)
    served = snapshot_weights("qwen3", policy.state_dict(), is_tied=False)
    first = {name.removeprefix("model.layers.0.self_attn.") for name in served if ".layers.0.self_attn." in name}
    norms = {"q_norm.weight", "k_norm.weight", "qk_norm.q_norm.weight", "qk_norm.k_norm.weight"}
    assert first == {"qkv_proj.weight", "o_proj.weight"} | norms
    assert {"model.embed_tokens.embeddings.weight", "model.norm.weight", "lm_head.linear.weight"} < served.keys()


def test_policies_without_a_place_in_fastdeploy_are_refused(make_model: Any) -> None:
    with pytest.raises(UserError, match=r"is for policies of qwen2 or qwen3, and this one is a llama: set .* vllm"):
        snapshot_weights("llama", make_model("llama").state_dict(), is_tied=False)
    fused = make_model(fuse_attention_qkv=True)
    with pytest.raises(UserError, match=r"layers\.0\.self_attn\.qkv_proj\.weight, which FastDeploy has otherwise"):
        snapshot_weights("qwen2", fused.state_dict(), is_tied=False)
