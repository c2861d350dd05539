"""Checks across keys, each ending in one sentence, before any model is loaded or process group is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from grrm.config.batch_plan import BatchPlan, batch_plan, nearest_values
from grrm.config.reward_checks import check_overlong, check_rule_reward
from grrm.errors import UserError
from grrm.rewards.failure_policy import FailurePolicy


@dataclass(frozen=True, slots=True)
class Launch:
    """Where a run starts: the best device there is ("cpu" or "gpu"), and the number of processes over all nodes."""

    device: str
    world_size: int = 1


_TRACKER_PACKAGES = {"tensorboard": "tensorboardX"}  # the writer that PaddleNLP uses
_HELD_OUT_METRICS = ("eval_reward", "eval_reward_greedy", "eval_frac_unrewarded")
# key -> (smallest, largest, whether the smallest itself is allowed)
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0, 100, False),
    "top_p": (0, 1, False),
    "repetition_penalty": (0, 100, False),
    "learning_rate": (0, 10, True),
    "warmup_ratio": (0, 1, True),
    "warmup_steps": (0, 10**9, True),
    "per_device_train_batch_size": (1, 10**6, True),
    "gradient_accumulation_steps": (1, 10**6, True),
    "logging_steps": (1, 10**9, True),
    "eval_steps": (1, 10**9, True),
    "save_total_limit": (0, 10**6, True),
    "seed": (0, 2**32 - 1, True),  # NumPy takes no other
    "rollout_seed": (0, 2**63 - 1, True),
    "early_stopping_patience": (1, 10**6, True),
    "max_prompt_len": (1, 10**7, True),
    "max_dec_len": (1, 10**7, True),
    "min_dec_len": (0, 10**7, True),
    "max_length": (1, 10**7, True),
    "rollout_max_num_seqs": (1, 10**6, True),
    "per_device_logprob_batch_size": (1, 10**6, True),
    "per_device_eval_batch_size": (1, 10**6, True),
    "clip_range_ratio": (0, 100, False),
    "clip_range_ratio_low": (0, 1, False),
    "clip_range_ratio_high": (0, 100, False),
    "clip_range_score": (0, 10**6, False),
    "kl_coeff": (0, 10**6, True),
    "kl_loss_coeff": (0, 10**6, True),
    "prompt_label_weight": (0, 10**6, True),
    "z_loss_weight": (0, 10**6, True),
    "frozen_layers": (0, 10**4, True),
    "entropy_coeff": (-(10**6), 10**6, True),
    "sft_coeff": (0, 10**6, True),
    "pg_loss_coeff": (0, 10**6, True),
    "gamma": (0, 1, False),
    "dual_clip_ratio": (1, 10**6, False),
    "logprob_gap_limit": (0, 10**6, False),
    "max_gen_batches": (1, 10**6, True),
    "max_unscored_fraction": (0, 1, True),
    "overlong_reward_buffer": (1, 10**7, True),
    "overlong_penalty_factor": (0, 10**6, True),
    "overlong_max_resp_len": (1, 10**7, True),
    "reward_connect_timeout_s": (0, 10**6, False),
    "reward_read_timeout_s": (0, 10**6, False),
    "reward_deadline_s": (0, 10**7, False),
    "reward_attempts": (1, 10**4, True),
    "reward_groups_per_request": (1, 10**6, True),
    "console_groups": (0, 10**4, True),
    "eval_samples": (0, 10**4, True),
}


def check_ranges(values: Mapping[str, Any]) -> None:
    """Raises UserError for a number outside what the key can mean; None is not checked."""
    for key, (low, high, inclusive) in _RANGES.items():
        value = values.get(key)
        if value is not None and not (low <= value <= high if inclusive else low < value <= high):
            bound = "at least" if inclusive else "above"
            raise UserError(f"{key} is {value:g}; it must be {bound} {low:g} and at most {high:g}.")


def check_common(values: Mapping[str, Any]) -> None:
    """Checks RL and SFT files share: output, data, evaluation, parallel keys. Raises UserError."""
    if not values["output_dir"]:
        raise UserError("output_dir is missing; name the folder for checkpoints and logs.")
    if not values["train_datasets"]:
        raise UserError("train_datasets is missing; give the JSONL file of training rows.")
    evaluates = values["do_eval"] or values["evaluation_strategy"] != "no"
    if evaluates and not values["eval_datasets"]:
        raise UserError("do_eval needs eval_datasets; give the JSONL file of held-out rows or set do_eval: false.")
    if values["tensor_parallel_degree"] > 1:
        raise UserError(
            f"tensor_parallel_degree {values['tensor_parallel_degree']} is not supported: scoring and rollouts need "
            "whole weights on each rank; set it to 1 and use sharding: stage1 for more than one process."
        )
    stages = values["sharding"].split()
    unknown = set(stages) - {"stage1", "stage2", "stage3", "offload"}
    if unknown or stages == ["offload"] or len(set(stages) - {"offload"}) > 1:
        raise UserError(f"sharding is {values['sharding']!r}; give one of stage1, stage2, stage3, or nothing.")

    if "async_save" in (values["unified_checkpoint_config"] or ""):
        raise UserError(
            "unified_checkpoint_config async_save is not supported: a checkpoint could be taken for whole while it is "
            "still being written; remove it."
        )


def check_rl(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Checks of an RL file after derivation; `given` holds the keys the user wrote. Raises UserError."""
    if not values["actor_model_name_or_path"]:
        raise UserError("actor_model_name_or_path is missing; give the folder or name of the policy's model.")
    _check_lengths(values)
    _check_sampling(values)
    _check_reward(values, given)
    check_rule_reward(values, given)
    _check_schedule(values)
    _check_intervals(values)
    if "stage3" in values["sharding"]:
        raise UserError("sharding stage3 is not supported: rollouts need whole weights on each rank; use stage1.")


def _check_lengths(values: Mapping[str, Any]) -> None:
    total = values["max_prompt_len"] + values["max_dec_len"]
    if values["max_length"] < total:
        raise UserError(
            f"max_length {values['max_length']} is less than max_prompt_len {values['max_prompt_len']} + max_dec_len "
            f"{values['max_dec_len']}; use at least {total} or remove max_length."
        )
    if values["min_dec_len"] > values["max_dec_len"]:
        raise UserError(f"min_dec_len {values['min_dec_len']} is above max_dec_len {values['max_dec_len']}; lower it.")
    check_overlong(values)


def _check_sampling(values: Mapping[str, Any]) -> None:
    for key in ("top_p", "repetition_penalty"):
        if values[key] != 1.0 and not values["allow_biased_sampling"]:
            raise UserError(
                f"{key} {values[key]:g} samples from another distribution than the one whose probabilities enter the "
                "policy ratio; set it to 1, or set allow_biased_sampling: true to accept the bias."
            )


def _check_schedule(values: Mapping[str, Any]) -> None:
    floor = values["min_learning_rate"]
    if floor is None:
        return
    if values["lr_scheduler_type"] != "cosine":
        raise UserError(
            f"min_learning_rate is not supported with lr_scheduler_type {values['lr_scheduler_type']}; use cosine, or "
            "polynomial with lr_end."
        )
    if not 0 <= floor <= values["learning_rate"]:
        raise UserError(
            f"min_learning_rate is {floor:g}; it must be at least 0 and at most learning_rate "
            f"{values['learning_rate']:g}."
        )


def _check_intervals(values: Mapping[str, Any]) -> None:
    """Logging, saving and evaluation, and what depends on the latter."""
    for key in ("logging_strategy", "save_strategy", "evaluation_strategy"):
        if values[key] == "epoch":
            raise UserError(f"{key} epoch is not supported, an RL run counts optimizer steps; use steps or no.")
    if values["evaluation_strategy"] == "no":
        for key in ("eval_datasets", "do_eval", "early_stopping", "load_best_model_at_end"):
            if values[key]:
                raise UserError(f"{key} needs evaluations; set evaluation_strategy: steps, or remove the key.")
    best = values["metric_for_best_model"]
    if best is None and not values["load_best_model_at_end"]:
        return
    if f"eval_{str(best).removeprefix('eval_')}" not in _HELD_OUT_METRICS:
        known = ", ".join(_HELD_OUT_METRICS)
        raise UserError(f"metric_for_best_model is {best}, but evaluations give {known}; name one of them.")


def _check_reward(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    FailurePolicy.from_mapping(values["failure_policy"])
    if not values["use_rm_server"]:
        if values["reward_server"]:
            raise UserError("reward_server is set but use_rm_server is false; set use_rm_server: true or remove it.")
        return
    if not values["reward_server"]:
        raise UserError("use_rm_server needs reward_server; give its URL, for example http://127.0.0.1:8731.")
    for url in values["reward_server"]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"reward_server {url!r} is not a URL; write it like http://127.0.0.1:8731.")
    if values["reward_deadline_s"] < values["reward_connect_timeout_s"]:
        raise UserError("reward_deadline_s is shorter than reward_connect_timeout_s; raise it.")
    if values["reward_protocol"] == "paddlenlp":
        for key in ("score_scale_factor", "default_reward", "failure_policy", "max_unscored_fraction"):
            if key in given:
                raise UserError(
                    f"{key} has no effect with reward_protocol paddlenlp, whose server sends finished rewards and "
                    "cannot say that one is missing; remove the key or use reward_protocol grrm."
                )


def check_sft(values: Mapping[str, Any]) -> None:
    """Checks of an SFT file. Raises UserError."""
    if bool(values["model_name_or_path"]) == bool(values["init_from_config"]):
        raise UserError("give either model_name_or_path, to go on from a model, or init_from_config, to start anew.")
    if values["init_from_config"] and not values["tokenizer_name_or_path"]:
        raise UserError("init_from_config needs tokenizer_name_or_path; give the folder of the tokenizer.")


def check_launch(values: Mapping[str, Any], launch: Launch) -> int:
    """The number of data ranks (data x sharding). Raises UserError when the degrees do not fit the processes."""
    tensor = max(values["tensor_parallel_degree"], 1)
    sharding = values["sharding_parallel_degree"] if values["sharding"] else 1
    world = launch.world_size
    needed: int = tensor * max(sharding, 1)
    if world % needed:
        raise UserError(
            f"tensor_parallel_degree {tensor} x sharding degree {max(sharding, 1)} does not divide the {world} "
            f"process(es); start a multiple of {needed} with python -m paddle.distributed.launch --nproc_per_node, "
            "or lower the degrees."
        )
    if values["sharding_parallel_degree"] > 1 and not values["sharding"]:
        raise UserError("sharding_parallel_degree needs sharding; set sharding: stage1 or remove the degree.")
    return int(world // tensor)


def check_device(values: Mapping[str, Any], available: str) -> None:
    """What PaddlePaddle cannot do on `values["device"]`, or would accept there without any effect. Raises UserError."""
    if values["device"] == "gpu":
        if available != "gpu":
            raise UserError("device is gpu, but PaddlePaddle sees none; install its GPU build or set device: cpu.")
        if values.get("rollout_quant_type"):
            raise UserError(
                "rollout_quant_type weight_only_int8 is done by kernels for CPUs; remove the key or set device: cpu."
            )
        return
    if values["fp16"]:
        raise UserError("fp16 is not supported on a CPU, where PaddlePaddle has no loss scaling; set fp16: false.")
    if any(stage in values["sharding"] for stage in ("stage2", "stage3")):
        raise UserError(f"sharding {values['sharding']} needs GPUs; use stage1 on a CPU.")
    if "split_param" in values["sharding_parallel_config"]:
        raise UserError("sharding_parallel_config split_param needs amp_master_grad, so a GPU; remove it.")
    if values["offload_optim"]:
        raise UserError("offload_optim has nowhere to offload to on a CPU; set offload_optim: false.")


def check_batches(
    values: Mapping[str, Any], data_ranks: int, n_prompts: int | None, given: Mapping[str, Any]
) -> BatchPlan:
    """The batch plan. Raises UserError when sizes do not divide or a save would fall in the middle of a rollout."""
    plan = batch_plan(SimpleNamespace(**values), data_ranks, n_prompts)
    accumulation = given.get("gradient_accumulation_steps", plan.gradient_accumulation_steps)
    if accumulation != plan.gradient_accumulation_steps:
        raise UserError(
            f"gradient_accumulation_steps {accumulation} contradicts the batch sizes, which need "
            f"{plan.gradient_accumulation_steps}; remove the key, it is derived."
        )
    saves, updates = values["save_steps"], plan.updates_per_rollout
    if values["save_strategy"] == "steps" and (saves < 1 or saves % updates):
        near = nearest_values(saves, lambda steps: steps % updates == 0, max(saves, 1) + updates)
        raise UserError(
            f"save_steps {saves} would save in the middle of a rollout of {updates} optimizer steps, from which no run "
            f"can resume; use {near}."
        )
    return plan


def check_files(values: Mapping[str, Any], model_keys: tuple[str, ...]) -> None:
    """Data, models and trackers that must be on this machine. Raises UserError."""
    for key in ("train_datasets", "eval_datasets", "reward_token_file", "init_from_config"):
        if values.get(key) and not Path(values[key]).is_file():
            raise UserError(f"{key} names the file {values[key]!r}, which does not exist; build it or mend the path.")
    for key in model_keys:
        path = values.get(key)
        if path and not Path(path).is_dir() and not _is_hub_name(path):
            raise UserError(f"{key} names the folder {path!r}, which does not exist; train it first or mend the path.")
    for tracker in values["report_to"]:
        package = _TRACKER_PACKAGES.get(tracker, tracker)
        if tracker not in ("none", "all") and importlib.util.find_spec(package) is None:
            raise UserError(
                f"report_to names {tracker}, whose package is not installed; run pip install {package} or drop it."
            )


def _is_hub_name(path: str) -> bool:
    """True for `Organisation/Model`: one slash, and nothing on this disk that the first part could be."""
    parts = path.split("/")
    return len(parts) == 2 and all(parts) and path[0] not in ".~/" and not Path(parts[0]).exists()
