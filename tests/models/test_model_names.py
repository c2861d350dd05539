"""Released models are accepted: sizes and settings of their config.json, and the published number of their weights."""

from __future__ import annotations

import json

import pytest

from grrm.config.model_shape import shape_of_config
from grrm.errors import UserError
from grrm.models.checkpoint import check_architecture, rotary_overrides

SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "tie_word_embeddings",
)
QWEN2 = {
    "Qwen1.5-0.5B": (1024, 2816, 24, 16, 16, 151936, 32768, 1e6, True, 463_987_712),
    "Qwen1.5-1.8B": (2048, 5504, 24, 16, 16, 151936, 32768, 1e6, False, 1_836_828_672),
    "Qwen1.5-7B": (4096, 11008, 32, 32, 32, 151936, 32768, 1e6, False, 7_721_324_544),
    "Qwen2-1.5B": (1536, 8960, 28, 12, 2, 151936, 131072, 1e6, True, 1_543_714_304),
    "Qwen2-7B": (3584, 18944, 28, 28, 4, 152064, 131072, 1e6, False, 7_615_616_512),
    "Qwen2-Math-7B": (3584, 18944, 28, 28, 4, 152064, 4096, 1e4, False, 7_615_616_512),
    "Qwen2.5-7B": (3584, 18944, 28, 28, 4, 152064, 131072, 1e6, False, 7_615_616_512),
    "Qwen2.5-Math-1.5B": (1536, 8960, 28, 12, 2, 151936, 4096, 1e4, True, 1_543_714_304),
    "Qwen2.5-Coder-14B": (5120, 13824, 48, 40, 8, 152064, 32768, 1e6, False, 14_770_033_664),
}
QWEN3 = {
    "Qwen3-0.6B": (1024, 3072, 28, 16, 8, 151936, 40960, 1e6, True, 596_049_920),
    "Qwen3-4B": (2560, 9728, 36, 32, 8, 151936, 40960, 1e6, True, 4_022_468_096),
    "Qwen3-8B": (4096, 12288, 36, 32, 8, 151936, 40960, 1e6, False, 8_190_735_360),
}
OTHERS = {
    "qwen2": {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 21, "attention_dropout": 0.0},
    "qwen3": {"use_sliding_window": False, "sliding_window": None, "attention_bias": False, "head_dim": 128}
    | {"rope_scaling": None},
}


@pytest.mark.parametrize(("kind", "name"), [*(("qwen2", name) for name in QWEN2), *(("qwen3", name) for name in QWEN3)])
def test_released_models_are_accepted_and_have_the_published_number_of_weights(tmp_path, kind, name):
    *sizes, n_weights = (QWEN2 | QWEN3)[name]
    settings = dict(zip(SIZES, sizes, strict=True)) | OTHERS[kind]
    config = {"model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"], **settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert check_architecture(tmp_path) == config
    assert rotary_overrides(tmp_path, config) == {}
    assert shape_of_config(config, name).numbers() == n_weights


def test_a_mixture_of_experts_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_moe"}))
    with pytest.raises(UserError, match=r"qwen2_moe.*experts end in a TypeError"):
        check_architecture(tmp_path)
