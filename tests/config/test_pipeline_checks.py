"""What stages of a pipeline are not combined with is refused with the reason, and what they need is derived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.rl_processes import CONFIGS

from grrm.config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig
from grrm.config.checks import Launch
from grrm.config.load import prepare
from grrm.config.memory_rows import memory_rows
from grrm.errors import UserError

STAGES = "--pipeline_parallel_degree=2"
FILES: dict[type[Any], Path] = {
    RLConfig: CONFIGS / "grpo_grrm_tiny_argument.yaml",
    SFTConfig: CONFIGS / "sft_tiny_argument.yaml",
}


def prepared(stage: type[Any], *overrides: str, processes: int = 4) -> Any:
    launch = Launch("cpu", processes)
    return prepare(stage, str(FILES[stage]), [STAGES, *overrides], launch, check_machine=False)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["--rl_algorithm=ppo"], "the critic is not divided into stages"),
        (["--lora=true"], "not supported with lora: adapters"),
        (["--frozen_layers=1"], "a stage of frozen layers alone"),
        (["--max_tokens_per_micro_batch=4096"], "must have as many micro-batches"),
        (["--fp16=true"], "the loss is scaled where all layers are"),
        (["--tensor_parallel_degree=2", "--sequence_parallel=true"], "stages pass on the hidden states of whole rows"),
        (["--tensor_parallel_degree=2", "--rollout_tensor_parallel_degree=2"], "each rank samples with the layers of"),
        (
            ["--rollout_backend=vllm", "--rollout_servers=http://h:1", "--temperature=1"],
            "servers take weights from ranks that have all layers",
        ),
    ],
)
def test_what_stages_do_not_work_with_is_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        prepared(RLConfig, *overrides)


def test_stages_save_unified_checkpoints_and_share_their_data() -> None:
    config = prepared(SFTConfig).config
    assert (config.pipeline_parallel_degree, config.unified_checkpoint) == (2, True)
    plan = prepared(RLConfig, "--global_batch_size=8", "--per_device_train_batch_size=32").plan
    assert plan.data_ranks == 2
    with pytest.raises(UserError, match=r"x pipeline_parallel_degree 2 x .* does not divide the 3 process"):
        prepared(SFTConfig, processes=3)


def test_stages_of_several_pieces_take_as_many_micro_batches_as_paddle_runs_them_on() -> None:
    pieces = ["--pipeline_parallel_degree=3", "--virtual_pp_degree=2"]
    for n in (3, 6, 7):
        prepared(SFTConfig, *pieces, f"--gradient_accumulation_steps={n}", processes=3)
    rl = [*pieces, "--global_batch_size=4", "--rollout_n=4"]
    prepared(RLConfig, *rl, "--per_device_train_batch_size=2", processes=3)
    sentence = "takes 3 micro-batches an optimizer step, or 6 and more, and there are 4"
    with pytest.raises(UserError, match=sentence):
        prepared(SFTConfig, *pieces, "--gradient_accumulation_steps=4", processes=3)
    with pytest.raises(UserError, match=sentence):
        prepared(RLConfig, *rl, "--per_device_train_batch_size=4", processes=3)


def test_memory_of_stages_is_not_planned() -> None:
    config = prepared(RLConfig).config
    assert memory_rows(config, None, 4, None) == [("memory", "unknown", "not planned for stages of a pipeline")]
    with pytest.raises(UserError, match="does not plan stages"):
        memory_rows(config, None, 4, 2**30)


@pytest.mark.parametrize("stage", [DPOConfig, RewardModelConfig])
def test_other_stages_of_training_refuse_stages_of_a_pipeline(stage: type[Any]) -> None:
    refusal = stage.support["pipeline_parallel_degree"]
    assert "only policies of run_sft.py and run_rl.py are divided" in refusal.note
