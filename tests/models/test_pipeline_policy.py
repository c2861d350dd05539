"""Policies that cannot be divided into stages are refused in one sentence."""

from __future__ import annotations

import pytest
from support.tiny_policy import random_policy

from grrm.errors import UserError
from grrm.models.pipeline_policy import check_stages


@pytest.mark.parametrize("model_type", ["qwen2", "llama"])
def test_as_many_stages_as_layers_are_accepted_and_not_more(model_type: str) -> None:
    config = random_policy(model_type, num_hidden_layers=3).config
    check_stages(config, 3, 1)
    with pytest.raises(UserError, match="3 layers, fewer than pipeline_parallel_degree 4: lower it"):
        check_stages(config, 4, 1)


def test_layers_must_divide_into_the_pieces_of_all_stages() -> None:
    config = random_policy("qwen2", num_hidden_layers=6).config
    check_stages(config, 3, 2)
    with pytest.raises(UserError, match="6 layers do not divide into pipeline_parallel_degree 4 x virtual_pp_degree 2"):
        check_stages(config, 4, 2)


@pytest.mark.parametrize("model_type", ["qwen2_moe", "qwen3"])
def test_architectures_without_pipeline_layers_are_refused_by_name(model_type: str) -> None:
    from grrm.models.policy import POLICY_BASES

    config = POLICY_BASES[model_type].config_class(num_hidden_layers=2)
    with pytest.raises(UserError, match=f"not supported for model_type '{model_type}', which has no pipeline layers"):
        check_stages(config, 2, 1)
