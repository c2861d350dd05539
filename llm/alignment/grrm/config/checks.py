"""Checks across keys, before any model is loaded or process group is started. Each notes a sentence per mistake."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.batch_plan import BatchPlan, batch_plan, nearest_values
from grrm.config.derive import check_pieces
from grrm.config.key import keys_of
from grrm.config.keys.optimization import EvaluationConfig
from grrm.config.keys.rollout import RolloutConfig
from grrm.config.problems import Problems
from grrm.config.reward_checks import check_overlong, check_reward_source, check_rule_reward
from grrm.config.rollout_checks import (
    check_evaluation,
    check_rollout_servers,
    check_sampling,
    check_tensor_rollouts,
    check_token_budget,
)
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig, StageConfig


@dataclass(frozen=True, slots=True)
class Launch:
    """Start of a run: the best device there is ("cpu", "gpu", or None until it is known), and the processes in all."""

    device: str | None = None
    world_size: int = 1


_PAIR_METRICS = ("eval_loss", "eval_pair_accuracy", "eval_margin")
_REWARD_MODEL_METRICS = ("eval_loss", "eval_pair_accuracy", "eval_correlation")
_REFUSED_OPTIONS = {  # of unified_checkpoint_config
    "async_save": "a checkpoint could be taken for whole while it is still being written; remove it",
    "ignore_merge_optimizer": "the optimizer would be saved in parts that fit one layout of ranks; remove it, or set "
    "unified_checkpoint: false",
}

_NO_STAGE3: dict[type[StageConfig], str] = {
    RLConfig: "rollouts need whole weights on each rank",
    RewardModelConfig: "evaluation needs whole weights on each rank",
    DPOConfig: "the reference is whole",
}


def check_common(config: StageConfig, problems: Problems) -> None:
    """Checks that all stages share: what must be given, evaluation, parallel keys."""
    for key in keys_of(type(config)).values():
        if key.required and not getattr(config, key.name):
            problems.add(f"{key.name} is missing; {key.required}.")
    held_out = any(getattr(config, name, None) for name in ("eval_datasets", "val_size", "held_out"))
    if isinstance(config, EvaluationConfig) and config.evaluation_strategy != "no" and not held_out:
        name = "do_eval" if config.do_eval else f"evaluation_strategy {config.evaluation_strategy}"
        problems.add(f"{name} needs eval_datasets; give the file, or set evaluation_strategy: no and do_eval: false.")
    stages = config.sharding.split()
    unknown = set(stages) - {"stage1", "stage2", "stage3", "offload"}
    if unknown or stages == ["offload"] or len(set(stages) - {"offload"}) > 1:
        problems.add_key(
            "sharding", f"sharding is {config.sharding!r}; give one of stage1, stage2, stage3, or nothing."
        )
    if "stage3" in stages and (why := _NO_STAGE3.get(type(config))):
        problems.add_key("sharding", f"sharding stage3 is not supported: {why}; use stage1.")
    if config.lr_scheduler_type == "polynomial" and config.lr_end >= config.learning_rate:
        problems.add(f"lr_end {config.lr_end:g} must be below learning_rate {config.learning_rate:g}; lower it.")
    if 0 < config.max_steps < config.warmup_steps:
        problems.notice(
            f"warmup_steps {config.warmup_steps} is above max_steps {config.max_steps}: the run ends before the "
            "learning rate reaches learning_rate."
        )
    for option, why in _REFUSED_OPTIONS.items():
        if option in (config.unified_checkpoint_config or ""):
            problems.add(f"unified_checkpoint_config {option} is not supported: {why}.")


def check_adapters(config: StageConfig, explicit: Set[str], problems: Problems) -> None:
    """Checks of LoRA: keys without it, and what it is not combined with."""
    if not config.lora:
        for name in sorted(explicit & {"lora_rank", "lora_alpha", "lora_target_modules"}):
            problems.add(f"{name} has no effect without lora; set lora: true or remove the key.")
        return
    conflicts = {
        "tensor_parallel_degree": config.tensor_parallel_degree > 1,
        "frozen_layers": bool(getattr(config, "frozen_layers", 0)),
        "init_from_config": bool(getattr(config, "init_from_config", None)),
        "rollout_servers": bool(getattr(config, "rollout_servers", None)),
        "backbone_learning_rate": getattr(config, "backbone_learning_rate", None) == 0,
    }
    for name, is_set in conflicts.items():
        if is_set:
            problems.add(f"lora is not supported with {name} {getattr(config, name)}; remove one of the two.")
    if not config.lora_target_modules:
        problems.add("lora_target_modules is empty, so there is nothing to train; name projections or remove the key.")


def check_rl(config: RLConfig, explicit: Set[str], problems: Problems) -> None:
    """Checks of an RL file after derivation; `explicit` holds the keys the user wrote."""
    _check_lengths(config, problems)
    check_overlong(config, problems)
    check_sampling(config, problems)
    check_token_budget(config, problems)
    check_tensor_rollouts(config, problems)
    check_rollout_servers(config, explicit, problems)
    check_reward_source(config, explicit, problems)
    check_rule_reward(config, explicit, problems)
    _check_schedule(config, problems)
    check_critic(config, problems)
    _check_intervals(config, problems)
    check_evaluation(config, explicit, problems)


def _check_lengths(config: RLConfig, problems: Problems) -> None:
    total = config.max_prompt_len + config.max_dec_len
    if config.max_length < total:
        problems.add(
            f"max_length {config.max_length} is less than max_prompt_len {config.max_prompt_len} + max_dec_len "
            f"{config.max_dec_len}; use at least {total} or remove max_length."
        )
    if config.min_dec_len > config.max_dec_len:
        problems.add(f"min_dec_len {config.min_dec_len} is above max_dec_len {config.max_dec_len}; lower it.")


def _check_schedule(config: RLConfig, problems: Problems, whose: str = "") -> None:
    """Of the policy, or of the critic, whose keys begin with `whose`."""
    keys = [f"{whose}{key}" for key in ("min_learning_rate", "lr_scheduler_type", "learning_rate")]
    floor, schedule, rate = (getattr(config, key) for key in keys)
    if floor is None:
        return
    if schedule != "cosine":
        problems.add(f"{keys[0]} is not supported with {keys[1]} {schedule}; use cosine, or polynomial with lr_end.")
    if not 0 <= floor <= rate:
        problems.add(f"{keys[0]} is {floor:g}; it must be at least 0 and at most {keys[2]} {rate:g}.")


def _check_intervals(config: RLConfig, problems: Problems) -> None:
    """Logging, saving and evaluation, and what depends on the latter."""
    for key in ("logging_strategy", "save_strategy", "evaluation_strategy"):
        if getattr(config, key) == "epoch":
            problems.add(f"{key} epoch is not supported, an RL run counts optimizer steps; use steps or no.")
    if config.evaluation_strategy == "no":
        for key in ("early_stopping", "load_best_model_at_end"):
            if getattr(config, key):
                problems.add(f"{key} needs evaluations; set evaluation_strategy: steps, or remove the key.")


def check_critic(config: RLConfig, problems: Problems) -> None:
    """Checks of a run with a critic."""
    if not ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        return
    _check_schedule(config, problems, "critic_")
    if config.fp16:
        problems.add(
            f"fp16 is not supported with advantage_rule {config.advantage_rule}: the losses of policy and critic would "
            "need a scale each; use bf16: true."
        )


def check_sft(config: SFTConfig, explicit: Set[str], problems: Problems) -> None:
    """Checks of an SFT file."""
    if bool(config.model_name_or_path) == bool(config.init_from_config):
        problems.add("give either model_name_or_path, to go on from a model, or init_from_config, to start anew.")
    elif config.init_from_config and not config.tokenizer_name_or_path:
        problems.add("init_from_config needs tokenizer_name_or_path; give the folder of the tokenizer.")
    _check_held_out(config, ("eval_loss",), problems)
    if "stage3" in config.sharding and config.evaluation_strategy != "no":
        problems.add("sharding stage3 leaves no whole weights to evaluate on any rank; use stage1, or do not evaluate.")


def _check_held_out(
    config: SFTConfig | RewardModelConfig | DPOConfig, metrics: Sequence[str], problems: Problems
) -> None:
    """Held-out rows, and the choice of a checkpoint by one of the `metrics` that they give."""
    if config.eval_datasets and config.val_size:
        problems.add("eval_datasets and val_size exclude each other; give one of them.")
    if config.val_size > 1 and not config.val_size.is_integer():
        problems.add_key("val_size", f"val_size is {config.val_size:g}; give a share below 1 or a whole number.")
    if config.evaluation_strategy == "no":
        for name in ("eval_datasets", "val_size", "load_best_model_at_end"):
            if getattr(config, name):
                problems.add(f"{name} needs evaluations; set evaluation_strategy: steps, or remove the key.")
    best = config.metric_for_best_model
    if best and f"eval_{best.removeprefix('eval_')}" not in metrics:
        names = ", ".join(metrics)
        problems.add(f"metric_for_best_model is {best}, but evaluations give {names}; name one of them.")


def check_reward_model(config: RewardModelConfig, explicit: Set[str], problems: Problems) -> None:
    """Checks of the file of a reward model."""
    if config.reward_model == "pairwise":
        for name in ("compare", "blocks", "width"):
            if name in explicit and getattr(config, name) != keys_of(RewardModelConfig)[name].default:
                problems.add(f"{name} is of the ranker; remove the key or set reward_model: ranker.")
    if config.backbone_learning_rate and not config.learning_rate:
        problems.add(
            f"backbone_learning_rate {config.backbone_learning_rate:g} trains nothing beside learning_rate 0, whose "
            "schedule it follows; raise learning_rate."
        )
    _check_held_out(config, _REWARD_MODEL_METRICS, problems)


def check_dpo(config: DPOConfig, explicit: Set[str], problems: Problems) -> None:
    """Checks of the file of preference optimization."""
    if config.dpo_label_smoothing and config.dpo_loss != "sigmoid":
        problems.add(f"dpo_label_smoothing has no effect with dpo_loss {config.dpo_loss}; remove the key.")
    _check_held_out(config, _PAIR_METRICS, problems)


def check_launch(config: StageConfig, n_processes: int, problems: Problems) -> int | None:
    """The number of data ranks (data x sharding); None, and a problem, when the degrees do not fit the processes."""
    if config.sharding_parallel_degree > 1 and not config.sharding:
        problems.add("sharding_parallel_degree needs sharding; set sharding: stage1 or remove the degree.")
    tensor = max(config.tensor_parallel_degree, 1)
    sharding = max(config.sharding_parallel_degree, 1) if config.sharding else 1
    stages = max(config.pipeline_parallel_degree, 1)
    needed = tensor * stages * sharding
    if n_processes % needed:
        pipeline = f"x pipeline_parallel_degree {stages} " if stages > 1 else ""
        problems.add(
            f"tensor_parallel_degree {tensor} {pipeline}x sharding degree {sharding} does not divide the "
            f"{n_processes} process(es); start a multiple of {needed} with python -m paddle.distributed.launch "
            "--nproc_per_node, or lower the degrees."
        )
        return None
    return n_processes // (tensor * stages)


def check_device(config: StageConfig, available: str, problems: Problems) -> None:
    """Notes what PaddlePaddle cannot do on `config.device`, or would accept there without any effect."""
    if config.device == "gpu":
        if available != "gpu":
            problems.add("device is gpu, but PaddlePaddle sees none; install its GPU build or set device: cpu.")
        if isinstance(config, RolloutConfig) and config.rollout_quant_type:
            problems.add(
                "rollout_quant_type weight_only_int8 is done by kernels for CPUs; remove the key or set device: cpu."
            )
        if config.use_flash_attention and not (config.bf16 or config.fp16):
            problems.add("use_flash_attention computes in 16 bits; set bf16: true or remove the key.")
        return
    if config.fp16:
        problems.add("fp16 is not supported on a CPU, where PaddlePaddle has no loss scaling; set fp16: false.")
    if any(stage in config.sharding for stage in ("stage2", "stage3")):
        problems.add(f"sharding {config.sharding} needs GPUs; use stage1 on a CPU.")
    if "async" in config.tensor_parallel_config:
        problems.add("tensor_parallel_config async options overlap kernels of GPUs; remove them on a CPU.")
    if "split_param" in config.sharding_parallel_config:
        problems.add("sharding_parallel_config split_param needs amp_master_grad, so a GPU; remove it.")
    if isinstance(config, RLConfig) and config.rollout_tensor_parallel_degree > 1 and config.bf16:
        problems.add(
            f"rollout_tensor_parallel_degree {config.rollout_tensor_parallel_degree} draws in float32 on a CPU, not as "
            "bf16 trains; set it to 1 or set bf16: false."
        )


def check_batches(
    config: RLConfig, explicit: Set[str], data_ranks: int, n_prompts: int | None, problems: Problems
) -> BatchPlan | None:
    """The batch plan; None where sizes are wrong or, with a problem, do not divide.

    Notes a save in the middle of a rollout.
    """
    plan = None
    if problems.concern(("global_batch_size", "global_mini_batch_size", "rollout_n")):
        return None
    with problems.noted():
        plan = batch_plan(config, data_ranks, n_prompts)
    if plan is None:
        return None
    accumulation = config.gradient_accumulation_steps
    if "gradient_accumulation_steps" in explicit and accumulation != plan.micro_batches_per_update:
        problems.add(
            f"gradient_accumulation_steps {accumulation} contradicts the batch sizes, which need "
            f"{plan.micro_batches_per_update}; remove the key, it is derived."
        )
    check_pieces(config, plan.micro_batches_per_update, problems)
    saves, updates = config.save_steps, plan.updates_per_rollout
    if config.save_strategy == "steps" and saves % updates:
        near = nearest_values(saves, lambda steps: steps % updates == 0, saves + updates)
        problems.add(
            f"save_steps {saves} would save in the middle of a rollout of {updates} optimizer steps, from which no run "
            f"can resume; use {near}."
        )
    return plan
