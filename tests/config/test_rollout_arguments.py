"""Keys of rollouts: engines that sample otherwise than the policy, servers, and tensor ranks that sample together."""

from __future__ import annotations

import pytest
from config.conftest import refusal

from grrm.config import Launch


def test_the_switch_for_biased_sampling_is_explicit(run):
    assert run({"top_p": 0.9, "allow_biased_sampling": True}).config.top_p == 0.9


def test_rollouts_that_differ_from_the_policy_are_corrected_unless_the_file_says_otherwise(run):
    assert run().config.rollout_is == "none"
    assert run({"rollout_ahead": 1}).config.rollout_is == "token"
    assert run({"rollout_backend": "vllm", "rollout_servers": "http://h:1"}).config.rollout_is == "token"
    in_8_bits = {"rollout_quant_type": "weight_only_int8"}
    assert run(in_8_bits).config.rollout_is == "token"
    assert run({**in_8_bits, "rollout_is": "none"}).config.rollout_is == "none"
    assert "set rollout_is: none" in refusal(run, {**in_8_bits, "top_p": 0.9, "allow_biased_sampling": True})


def test_rollout_servers_are_held_to_a_limit_and_their_rollouts_too_unless_older_weights_are_allowed(run):
    servers = {"rollout_backend": "vllm", "rollout_servers": "http://h:1"}

    def limits(**settings):
        config = run(servers | settings).config
        return config.rollout_check_limit, config.logprob_gap_limit

    assert limits() == (0.01, 0.01)
    assert limits(bf16=True) == (0.05, 0.05)
    assert limits(rollout_check_limit=0.2) == (0.2, 0.2)
    assert limits(rollout_check_limit=0) == (0, None)
    assert limits(rollout_backend="fastdeploy", min_dec_len=0) == (0.05, 0.05)
    assert limits(rollout_ahead=1) == limits(rollout_max_staleness=2) == (0.01, None)
    assert limits(logprob_gap_limit=0.3) == (0.01, 0.3)
    assert run().config.logprob_gap_limit is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_quant_type": "weight_only_int8"}, "is not supported with rollout_quant_type weight_only_int8"),
        ({"bf16": True, "fp16_opt_level": "O1"}, "rollout_tensor_parallel_degree 2 draws in float32 on a CPU"),
        (
            {"rollout_backend": "vllm", "rollout_servers": ["http://127.0.0.1:8000"]},
            "is not supported with rollout_backend vllm",
        ),
    ],
)
def test_tensor_ranks_that_sample_together_refuse_what_they_cannot_do(run, changes, message):
    together = {"tensor_parallel_degree": 2, "rollout_tensor_parallel_degree": 2}
    assert run(together, launch=Launch("cpu", 2)).config.rollout_tensor_parallel_degree == 2
    assert message in refusal(run, {**together, **changes}, launch=Launch("cpu", 2))
