"""Fills in the settings that follow from others, and refuses combinations in which one of them would be ignored."""

from __future__ import annotations

import importlib.util
from typing import Any, TypeVar

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.derive_objective import derive_critic, derive_objective, or_else
from grrm.config.key import By, keys_of
from grrm.config.keys.optimization import EvaluationConfig
from grrm.config.problems import Problems
from grrm.config.rollout_checks import best_metric, has_held_out, held_out_metrics
from grrm.config.stage_config import RLConfig, StageConfig

C = TypeVar("C", bound=StageConfig)

_TRACKER_PACKAGES = {"tensorboard": "tensorboardX"}  # the writer that PaddleNLP uses


def derive_rl(config: RLConfig, problems: Problems) -> RLConfig:
    """`config` with a value for every None that means "derived".

    A key that could not take effect with the chosen algorithm is a problem.
    """
    config = derive_objective(config, problems)
    for step in (derive_critic, _floors, _lengths, _correction, _servers, _evaluation):
        config = config.model_copy(update=step(config, problems))
    return config


def derive_common(config: C) -> C:
    """`config` with what PaddleNLP makes of its parallel keys and of `do_eval`, and a scale of LoRA for its rank.

    Sequence parallelism divides tokens among tensor ranks, so without these it is off. Checkpoints of tensor ranks are
    written in the format for any layout, and those of stages: others hold a part of the model in each file, as pickles.
    """
    has_ranks = config.tensor_parallel_degree > 1
    derived: dict[str, Any] = {} if has_ranks else {"sequence_parallel": False}
    is_divided = has_ranks or config.pipeline_parallel_degree > 1
    if is_divided and keys_of(type(config))["unified_checkpoint"].support.by is not By.REFUSED:
        derived["unified_checkpoint"] = True
    if config.lora_alpha is None:
        derived["lora_alpha"] = 2 * config.lora_rank
    if isinstance(config, EvaluationConfig) and config.do_eval and config.evaluation_strategy == "no":
        derived["evaluation_strategy"] = "steps"
    return config.model_copy(update=derived)


def derive_device(config: C, problems: Problems) -> C:
    """`config` without what its device cannot do and a run can do without."""
    if config.device != "cpu" or not config.offload_optim:
        return config
    problems.notice("offload_optim has nowhere to offload to on a CPU, so the optimizer stays where it is.")
    return config.model_copy(update={"offload_optim": False})


def derive_trackers(config: C, problems: Problems) -> C:
    """`config` without trackers whose package is not installed here. Notes words for none or all beside others."""
    if len(config.report_to) > 1 and (words := {"none", "all"} & {*config.report_to}):
        problems.add(f"report_to names {min(words)} beside other trackers; leave it out, or the others.")
    absent = [name for name in config.report_to if name not in ("none", "all") and not _is_installed(name)]
    for name in absent:
        package = _TRACKER_PACKAGES.get(name, name)
        problems.notice(
            f"report_to names {name}, whose package is not installed; run pip install {package} to have it."
        )
    if not absent:
        return config
    present = [name for name in config.report_to if name not in absent]
    return config.model_copy(update={"report_to": present or ["none"]})


def _is_installed(tracker: str) -> bool:
    return importlib.util.find_spec(_TRACKER_PACKAGES.get(tracker, tracker)) is not None


def _floors(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """A constant learning rate is its own floor, as PaddleNLP's file for PPO has it."""
    return {
        f"{whose}min_learning_rate": None
        for whose in ("", "critic_")
        if getattr(config, f"{whose}lr_scheduler_type") in ("constant", "constant_with_warmup")
        and getattr(config, f"{whose}min_learning_rate") == getattr(config, f"{whose}learning_rate")
    }


def _lengths(config: RLConfig, problems: Problems) -> dict[str, Any]:
    rows = config.per_device_logprob_batch_size
    return {
        "max_length": or_else(config.max_length, config.max_prompt_len + config.max_dec_len),
        "overlong_max_resp_len": or_else(config.overlong_max_resp_len, config.max_dec_len),
        "rollout_seed": or_else(config.rollout_seed, config.seed),
        "per_device_logprob_batch_size": config.per_device_train_batch_size if rows == -1 else rows,
    }


def _correction(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Derive the keys that correct rollouts for the difference between the engine and the trainer's policy."""
    is_other = config.rollout_quant_type or config.rollout_ahead or config.rollout_backend != "paddle"
    unit = ("token" if is_other else "none") if config.rollout_is == "auto" else config.rollout_is
    for name in ("rollout_is_mode", "rollout_is_cap", "rollout_is_floor"):
        if unit == "none" and getattr(config, name) != keys_of(RLConfig)[name].default:
            problems.notice(f"{name} has no effect with rollout_is {config.rollout_is}; set it to token or sequence.")
    return {"rollout_is": unit}


def _servers(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Rollouts of servers with the current weights are held to the limit too: a server may restart during one."""
    rounds = config.bf16 or config.fp16 or config.rollout_backend == "fastdeploy"  # which computes in bfloat16
    limit = or_else(config.rollout_check_limit, 0.05 if rounds else 0.01)
    is_older = config.rollout_backend == "paddle" or config.rollout_ahead or config.rollout_max_staleness
    gap_limit = None if is_older else limit or None
    return {"rollout_check_limit": limit, "logprob_gap_limit": or_else(config.logprob_gap_limit, gap_limit)}


def _evaluation(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Held-out rows are evaluated before the first step. PaddleNLP takes more of any metric but a loss for better."""
    return {
        "eval_on_start": or_else(config.eval_on_start, has_held_out(config)),
        "greater_is_better": or_else(config.greater_is_better, held_out_metrics(config).get(best_metric(config) or "")),
    }


def check_pipeline(config: StageConfig, problems: Problems) -> None:
    """Notes the keys that stages of a pipeline do not work with. The micro-batches of RL are known later."""
    if not isinstance(config, RLConfig):
        check_pieces(config, config.gradient_accumulation_steps, problems)
    if config.pipeline_parallel_degree <= 1:
        return
    degree = f"pipeline_parallel_degree {config.pipeline_parallel_degree}"
    for name, why in _conflicts(config).items():
        problems.add(f"{degree} is not supported with {name}: {why}; remove one of the two.")


def check_pieces(config: StageConfig, micro_batches: int, problems: Problems) -> None:
    """Notes stages of several pieces that Paddle does not run on so many micro-batches an optimizer step."""
    stages, pieces = config.pipeline_parallel_degree, f"virtual_pp_degree {config.virtual_pp_degree}"
    if config.virtual_pp_degree == 1:
        return
    if stages < 3:
        problems.add(f"{pieces} takes pipeline_parallel_degree 3 or more in Paddle; raise that, or remove the key.")
    elif micro_batches != stages and micro_batches < 2 * stages:
        problems.add(
            f"{pieces} takes {stages} micro-batches an optimizer step, or {2 * stages} and more, and there are "
            f"{micro_batches}; change per_device_train_batch_size, or remove the key."
        )


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
