"""Released models are accepted: sizes and settings of their config.json, and the published number of their weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grrm.config import Launch, RLConfig, prepare
from grrm.config.memory import GIB
from grrm.config.memory_rows import memory_rows
from grrm.config.model_shape import check_divides, model_shape, shape_of_config
from grrm.errors import UserError
from grrm.models.checkpoint import check_architecture, rotary_overrides

GRPO = str(Path(__file__).parents[2] / "llm/config/qwen/grpo_grrm_argument.yaml")
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
QWEN2_MOE = {
    "Qwen1.5-MoE-A2.7B": (2048, 5632, 24, 16, 16, 151936, 8192, 1e6, False, 14_315_784_192),
    "Qwen2-57B-A14B": (3584, 18944, 28, 28, 4, 151936, 131072, 1e6, False, 57_408_658_944),
}
EXPERTS = {
    "Qwen1.5-MoE-A2.7B": {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
    | {"shared_expert_intermediate_size": 5632},
    "Qwen2-57B-A14B": {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560}
    | {"shared_expert_intermediate_size": 20480},
}
RELEASED = {"qwen2": QWEN2, "qwen3": QWEN3, "qwen2_moe": QWEN2_MOE}
OTHERS = {
    "qwen2": {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 21, "attention_dropout": 0.0},
    "qwen3": {"use_sliding_window": False, "sliding_window": None, "attention_bias": False, "head_dim": 128}
    | {"rope_scaling": None},
    "qwen2_moe": {"decoder_sparse_step": 1, "norm_topk_prob": False, "output_router_logits": False},
}


def config_of(kind, name):
    settings = dict(zip(SIZES, RELEASED[kind][name], strict=False)) | OTHERS[kind] | EXPERTS.get(name, {})
    return {"model_type": kind, **settings}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in RELEASED for name in RELEASED[kind]])
def test_released_models_are_accepted_and_have_the_published_number_of_weights(tmp_path, kind, name):
    config, n_weights = config_of(kind, name), RELEASED[kind][name][-1]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert check_architecture(tmp_path) == config
    assert rotary_overrides(tmp_path, config) == {}
    assert shape_of_config(config, name).numbers() == n_weights


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in RELEASED for name in RELEASED[kind]])
def test_a_name_has_the_shape_of_its_configuration(kind, name):
    of_name = model_shape(f"Qwen/{name}")
    of_file = shape_of_config({"head_dim": of_name.head_dim} | config_of(kind, name), of_name.name)
    assert of_file == of_name


# PaddleNLP's table of models for its RL: by family the sizes, each without and with the suffix.
TABLE = {
    ("Qwen1.5", "Chat"): "0.5B 1.8B 4B 7B 14B 32B",
    ("Qwen2", "Instruct"): "0.5B 1.5B 7B 72B 57B-A14B",
    ("Qwen2-Math", "Instruct"): "1.5B 7B",
    ("Qwen2.5", "Instruct"): "0.5B 1.5B 3B 7B 14B 32B",
    ("Qwen2.5-Math", "Instruct"): "1.5B 7B",
    ("Qwen2.5-Coder", "Instruct"): "1.5B 7B",
}
NAMES = [
    f"Qwen/{family}-{size}{end}"
    for (family, suffix), sizes in TABLE.items()
    for size in sizes.split()
    for end in ("", f"-{suffix}")
]
NAMES.append("Qwen/Qwen2.5-7B-Instruct-1M")  # whose template its data have
# Published numbers of weights, in billions, that the name does not say.
BILLIONS = {"Qwen1.5-0.5B": 0.464, "Qwen1.5-1.8B": 1.837, "Qwen1.5-4B": 3.950, "Qwen1.5-14B": 14.167}
BILLIONS |= {"Qwen1.5-32B": 32.512, "Qwen2-72B": 72.706, "Qwen2.5-0.5B": 0.494, "Qwen2.5-32B": 32.764}


def test_each_name_of_the_table_is_planned():
    config = prepare(RLConfig, GRPO, [], Launch(None, 8), check_machine=False).config
    assert len(NAMES) == 47
    for name in NAMES:
        shape = model_shape(name)
        assert name.startswith(f"Qwen/{shape.name.removesuffix('57B')}")
        billions = BILLIONS.get(shape.name, float(shape.name.rpartition("-")[2].removesuffix("B")))
        assert shape.numbers() / 1e9 == pytest.approx(billions, rel=0.12)
        rows = dict(row[:2] for row in memory_rows(config, shape, 8, 80 * GIB))
        assert rows["model"] == shape.name
        assert rows["fits as written"] in ("yes", "no")


def test_mixtures_of_experts_are_not_divided_among_tensor_ranks():
    config = config_of("qwen2_moe", "Qwen2-57B-A14B")
    check_divides("model", config, 1)
    with pytest.raises(UserError, match="the experts of model stay whole: use 1"):
        check_divides("model", config, 2)
