"""Untrained models of a configuration file: weights of the seed, settings of the file, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from sft.sft_runs import TINY, sft_settings
from support.rl_processes import CONFIGS, TinyWorld

from grrm.config import SFTConfig, load_config
from grrm.errors import UserError
from grrm.sft import run as sft_run


def test_a_fresh_model_is_that_of_its_seed_and_divides_among_tensor_ranks(world: TinyWorld, tmp_path: Path) -> None:
    fresh = {"init_from_config": str(CONFIGS / "tiny_model_config.json"), "model_name_or_path": "null"}
    config = load_config(SFTConfig, TINY, sft_settings(world, tmp_path, **fresh))
    whole = SimpleNamespace(tensor_parallel_degree=1, pipeline_parallel_degree=1)
    one, other = (sft_run.build_model(config, whole, 90) for _ in range(2))
    assert one.config.vocab_size == 90
    for weight, same in zip(one.parameters(), other.parameters(), strict=True):
        assert (weight == same).all()
    degrees = {"tensor_parallel_degree": 7, "tensor_parallel_rank": 0, "sequence_parallel": False}
    with pytest.raises(UserError, match=r"tensor_parallel_degree 7 does not divide .*tiny_model_config.json"):
        sft_run.build_model(config, SimpleNamespace(**degrees), 90)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"use_sliding_window": True, "sliding_window": 8}, "has use_sliding_window, which would be left out here"),
        ({"model_type": "llama", "mlp_bias": True}, "has mlp_bias, which would be left out here"),
        ({"hidden_act": "gelu"}, "has hidden_act, which would be left out here"),
        ({"head_dim": 64}, "has head_dim, which would be left out here"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, r"shape.json' scales rotary embeddings \(yarn\)"),
        ({"hidden_size": "192"}, "has hidden_size 192, which no model has: correct it"),
        ({"num_hidden_layers": 0}, "has num_hidden_layers 0, which no model has"),
        ({"intermediate_size": None}, "has intermediate_size None, which no model has"),
        ({"hidden_size": 190}, "num_attention_heads 4 does not divide hidden_size 190"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide num_attention_heads 4"),
        ({"hidden_size": 180}, "heads are 45 wide, which rotary embeddings do not halve"),
    ],
)
def test_a_fresh_model_that_could_not_be_trained_or_opened_later_is_refused(
    tmp_path: Path, changes: dict, sentence: str
) -> None:
    shape = json.loads((CONFIGS / "tiny_model_config.json").read_text()) | changes
    (tmp_path / "shape.json").write_text(json.dumps(shape))
    with pytest.raises(UserError, match=sentence):
        sft_run.fresh_model(str(tmp_path / "shape.json"), 1, 90)


def test_a_fresh_model_has_the_rotary_angles_and_heads_of_its_file(tmp_path: Path) -> None:
    shape = json.loads((CONFIGS / "tiny_model_config.json").read_text())
    del shape["rope_theta"], shape["num_key_value_heads"]
    (tmp_path / "shape.json").write_text(json.dumps({**shape, "rope_parameters": {"rope_theta": 5e5}}))
    config = sft_run.fresh_model(str(tmp_path / "shape.json"), 1, 90).config
    assert (config.rope_theta, config.num_key_value_heads) == (5e5, config.num_attention_heads)
