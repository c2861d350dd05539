"""Models made for weights that are there already: they have the type of those, which on GPUs is bfloat16."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import paddle
import pytest
from engine.paddle.fused_reference import reference_operators
from support.rl_processes import ROOT, run
from support.tiny_policy import random_policy

from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.weights import collect_weights
from grrm.models.gathered_weights import GatheredCopy, part_of


@pytest.fixture
def policy():
    policy = random_policy("qwen2")
    policy.to(dtype="bfloat16")
    return policy


def numbers(parameter: paddle.Tensor) -> np.ndarray:
    return parameter.astype("float32").numpy()


def test_the_copy_that_ranks_sample_with_has_the_type_of_the_policy_before_it_has_its_weights(policy):
    copy = GatheredCopy(policy)
    operators = replace(reference_operators(), dtypes=(paddle.bfloat16,))
    assert GpuDecoder.unsupported_reason(copy.model, operators) is None, "an engine chooses its decoder now"
    assert collect_weights(copy.model).cos_TD.dtype == paddle.bfloat16, "and keeps tables of that type"
    copy.fill()
    for name, parameter in copy.model.named_parameters():
        assert parameter.dtype == paddle.bfloat16
        np.testing.assert_array_equal(numbers(parameter), numbers(dict(policy.named_parameters())[name]))
    assert paddle.get_default_dtype() == "float32"


def test_a_part_of_a_policy_has_its_type_and_bits(policy):
    part = part_of(policy, {"sequence_parallel": False})
    for name, parameter in part.named_parameters():
        assert parameter.dtype == paddle.bfloat16
        np.testing.assert_array_equal(numbers(parameter), numbers(dict(policy.named_parameters())[name]))


STAGE = """
from grrm.startup import configure_process
configure_process()
from paddle.distributed import fleet
from support.tiny_policy import random_policy
from grrm.models.pipeline_policy import stage_of
from grrm.parallel.gloo import support_gloo
support_gloo()
strategy = fleet.DistributedStrategy()
strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, "sharding_degree": 1}
fleet.init(is_collective=True, strategy=strategy)
policy = random_policy("qwen2")
policy.to(dtype="bfloat16")
print(sorted({str(parameter.dtype) for parameter in stage_of(policy).parameters()}))
"""


@pytest.mark.slow
def test_a_stage_of_a_policy_has_its_type():
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n{STAGE}"
    assert run([sys.executable, "-c", code]).stdout.splitlines()[-1] == "['paddle.bfloat16']"
