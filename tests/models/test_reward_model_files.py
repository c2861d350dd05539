"""Reward models in their folders: what is written is read, and what is not whole is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file
from support.tiny_models import backbone_folder, draw_groups, flat, reward_model, scores

from grrm.errors import UserError
from grrm.models.policy import load_policy
from grrm.models.reward_models import load_reward_model, save_reward_model, take_over_head, with_new_head
from grrm.models.value_head import RewardModel

__all__ = ["backbone_folder", "reward_model"]  # fixtures


def test_saved_and_loaded_it_gives_the_same_scores(model: RewardModel, tmp_path: Path):
    groups = draw_groups(4, 2, seed=8)
    save_reward_model(model, tmp_path / "saved")
    loaded = load_reward_model(tmp_path / "saved")
    assert (loaded.kind, loaded.settings()) == (model.kind, model.settings())
    np.testing.assert_allclose(flat(scores(loaded, groups)), flat(scores(model, groups)), atol=1e-6)
    assert load_policy(tmp_path / "saved").config.hidden_size == model.config.hidden_size  # an ordinary checkpoint too


def test_a_reward_model_of_the_same_head_goes_on_where_it_was(model: RewardModel, backbone: Path, tmp_path: Path):
    save_reward_model(model, tmp_path)
    further = with_new_head(model.kind, load_policy(tmp_path), seed=9, **model.settings())
    take_over_head(further, backbone)  # of a policy there is none
    groups = draw_groups(3, 4)
    assert scores(further, groups) != scores(model, groups)
    take_over_head(further, tmp_path)
    assert scores(further, groups) == scores(model, groups)
    other = "pairwise" if model.kind == "ranker" else "ranker"
    there = f"holds a reward model \\(reward_model {model.kind}.*cannot go on as another \\(reward_model {other}"
    with pytest.raises(UserError, match=there):
        take_over_head(with_new_head(other, load_policy(backbone)), tmp_path)


def test_the_value_head_is_in_the_layout_of_llama_factory(backbone: Path, tmp_path: Path):
    model = with_new_head("pairwise", load_policy(backbone), seed=1)
    save_reward_model(model, tmp_path)
    stored = load_file(tmp_path / "value_head.safetensors")
    assert {name: one.shape for name, one in stored.items()} == {
        "v_head.summary.weight": (1, 32),
        "v_head.summary.bias": (1,),
    }
    groups = draw_groups(3, seed=1)
    expected = scores(model, groups)
    (tmp_path / "reward_model.json").unlink()  # which it does not write
    np.testing.assert_allclose(flat(scores(load_reward_model(tmp_path), groups)), flat(expected), atol=1e-6)


def test_a_value_head_in_bfloat16_is_read(backbone: Path, tmp_path: Path):
    model = with_new_head("pairwise", load_policy(backbone))
    model.head.weight.set_value(paddle.full([32, 1], 0.75))
    save_reward_model(model, tmp_path)
    head = {"v_head.summary.weight": paddle.full([1, 32], 0.75), "v_head.summary.bias": paddle.full([1], -2.5)}
    header, data = {}, b""
    for name, one in head.items():
        bits = (one.numpy().view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": one.shape, "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    (tmp_path / "value_head.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    loaded = load_reward_model(tmp_path)
    assert loaded.head.weight.numpy().tolist() == [[0.75]] * 32
    assert loaded.head.bias.tolist() == [-2.5]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def of_another_width(path: Path) -> None:
    save_file({name: np.zeros([3, 5], dtype=np.float32) for name in load_file(path)}, path)


def without_one(path: Path) -> None:
    tensors = load_file(path)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, path)


@pytest.mark.parametrize("damage", [truncate, of_another_width, without_one, Path.unlink])
def test_a_head_that_is_not_whole_or_does_not_fit_is_one_sentence(model: RewardModel, tmp_path: Path, damage):
    save_reward_model(model, tmp_path)
    (path,) = tmp_path.glob("*_head.safetensors")
    damage(path)
    with pytest.raises(UserError) as refused:
        load_reward_model(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    ["{", "[]", "{}", '{"kind": "oracle"}', '{"kind": "pairwise", "depth": 2}', '{"kind": "ranker", "width": "wide"}'],
)
def test_settings_that_describe_no_reward_model_are_one_sentence(backbone: Path, tmp_path: Path, settings: str):
    save_reward_model(with_new_head("pairwise", load_policy(backbone)), tmp_path)
    save_file({}, tmp_path / "ranker_head.safetensors")
    (tmp_path / "reward_model.json").write_text(settings)
    with pytest.raises(UserError, match=r"reward_model\.json"):
        load_reward_model(tmp_path)


def test_saving_leaves_other_files_of_the_folder(backbone: Path, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    save_reward_model(with_new_head("ranker", load_policy(backbone), blocks=1), tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == "{}"
    assert json.loads((tmp_path / "reward_model.json").read_text())["blocks"] == 1
