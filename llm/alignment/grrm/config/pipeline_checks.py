"""Keys that stages of a pipeline are not combined with, and the reasons."""

from __future__ import annotations

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig, StageConfig


def check_pipeline(config: StageConfig, problems: Problems) -> None:
    """Notes the keys that stages of a pipeline do not work with."""
    if config.pipeline_parallel_degree <= 1:
        return
    degree = f"pipeline_parallel_degree {config.pipeline_parallel_degree}"
    for name, why in _conflicts(config).items():
        problems.add(f"{degree} is not supported with {name}: {why}; remove one of the two.")


def _conflicts(config: StageConfig) -> dict[str, str]:
    """The keys with their values that rule stages out, and the reason of each."""
    conflicts: dict[str, str] = {}
    if config.lora:
        conflicts["lora"] = "adapters are merged into layers that are not all here"
    if config.sequence_parallel:
        conflicts["sequence_parallel"] = "stages pass on the hidden states of whole rows"
    if config.fp16:
        conflicts["fp16"] = "the loss is scaled where all layers are"
    if getattr(config, "frozen_layers", 0):
        conflicts["frozen_layers"] = "a stage of frozen layers alone has no gradient to send"
    if any(stage in config.sharding for stage in ("stage2", "stage3")):
        conflicts[f"sharding {config.sharding}"] = "PaddleNLP's pipelines shard optimizer states alone"
    if not isinstance(config, RLConfig):
        return conflicts
    if config.max_tokens_per_micro_batch:
        conflicts["max_tokens_per_micro_batch"] = "each step must have as many micro-batches"
    if ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        conflicts[f"advantage_rule {config.advantage_rule}"] = "the critic is not divided into stages"
    if config.rollout_backend != "paddle":
        conflicts[f"rollout_backend {config.rollout_backend}"] = "servers take weights from ranks that have all layers"
    if config.rollout_tensor_parallel_degree > 1:
        conflicts["rollout_tensor_parallel_degree"] = "each rank samples with the layers of all stages"
    return conflicts
