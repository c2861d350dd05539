"""Fills in the settings that follow from others, and refuses combinations in which one of them would be ignored."""

from __future__ import annotations

import importlib.util
from typing import Any, TypeVar

from grrm.config.evaluation_checks import best_metric, held_out_metrics
from grrm.config.key import By, keys_of
from grrm.config.problems import Problems
from grrm.config.rl_config import RLConfig
from grrm.config.stage_config import StageConfig
from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import FailureAction

C = TypeVar("C", bound=StageConfig)

_TRACKER_PACKAGES = {"tensorboard": "tensorboardX"}  # the writer that PaddleNLP uses
# rl_algorithm -> (advantage rule, policy loss, aggregation the paper prescribes)
_ALGORITHMS = {
    "grpo": ("grpo", "token_clip", "token-mean"),
    "gspo": ("grpo", "gspo", "seq-mean-token-mean"),
    "dr_grpo": ("dr_grpo", "token_clip", "seq-mean-token-sum-norm"),
    "rloo": ("rloo", "token_clip", "token-mean"),
    "reinforce_plus_plus": ("reinforce_plus_plus", "token_clip", "token-mean"),
    "reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", "token_clip", "token-mean"),
}
# Rules that compare with the group and leave out its standard deviation, as norm_adv_by_std: false asks.
_NEVER_BY_STD = ("grpo_no_std", "dr_grpo", "rloo")
_AGAINST_THE_GROUP = ("grpo", *_NEVER_BY_STD)


def derive_rl(config: RLConfig, problems: Problems) -> RLConfig:
    """`config` with a value for every None that means "derived".

    A key that could not take effect with the chosen algorithm is a problem.
    """
    for step in (_algorithm, _rule, _failures, _normalisation, _kl, _clips, _lengths, _correction, _best):
        config = config.model_copy(update=step(config, problems))
    return config


def derive_common(config: C) -> C:
    """`config` with what PaddleNLP makes of its parallel keys, and of a rank of LoRA without a scale.

    Sequence parallelism divides tokens among tensor ranks, so without these it is off. Checkpoints of tensor ranks are
    written in the format for any layout: others hold a part of the model in each file, as pickles.
    """
    has_ranks = config.tensor_parallel_degree > 1
    derived: dict[str, Any] = {} if has_ranks else {"sequence_parallel": False}
    if has_ranks and keys_of(type(config))["unified_checkpoint"].support.by is not By.REFUSED:
        derived["unified_checkpoint"] = True
    if config.lora_alpha is None:
        derived["lora_alpha"] = 2 * config.lora_rank
    return config.model_copy(update=derived)


def derive_device(config: C, problems: Problems) -> C:
    """`config` without what its device cannot do and a run can do without."""
    if config.device != "cpu" or not config.offload_optim:
        return config
    problems.notice("offload_optim has nowhere to offload to on a CPU, so the optimizer stays where it is.")
    return config.model_copy(update={"offload_optim": False})


def derive_trackers(config: C, problems: Problems) -> C:
    """`config` without trackers whose package is not installed here."""
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


def _algorithm(config: RLConfig, problems: Problems) -> dict[str, Any]:
    algorithm = config.rl_algorithm
    if algorithm == "ppo":
        problems.add_key(
            "rl_algorithm",
            "rl_algorithm ppo is not supported because there is no critic; use grpo, gspo or reinforce_plus_plus.",
        )
    rule, loss, aggregation = _ALGORITHMS.get(algorithm, _ALGORITHMS["grpo"])
    if algorithm == "gspo" and config.policy_loss == "token_clip":
        problems.add(
            f"rl_algorithm gspo contradicts policy_loss {config.policy_loss}; use rl_algorithm grpo or drop the key."
        )
    loss = config.policy_loss or loss
    if loss == "gspo":
        aggregation = "seq-mean-token-mean"
        if config.dual_clip_ratio is not None:
            problems.add("dual_clip_ratio has no meaning for the gspo loss; remove the key or use token_clip.")
    return {
        "advantage_rule": config.advantage_rule or rule,
        "policy_loss": loss,
        "loss_agg_mode": config.loss_agg_mode or aggregation,
    }


def _rule(config: RLConfig, problems: Problems) -> dict[str, Any]:
    rule, by_std = config.advantage_rule, config.norm_adv_by_std
    if by_std is not None and (by_std or rule not in _NEVER_BY_STD):
        if rule not in ("grpo", "grpo_no_std") or (rule == "grpo_no_std" and by_std):
            problems.add(f"norm_adv_by_std contradicts advantage_rule {rule}; remove the key.")
        else:
            rule = "grpo" if by_std else "grpo_no_std"
    if rule != "reinforce_plus_plus" and config.gamma != 1.0:
        problems.add(
            f"gamma {config.gamma:g} is not supported with advantage_rule {rule}, which has one reward per "
            "response; remove the key or use rl_algorithm reinforce_plus_plus."
        )
    if rule != "reinforce_plus_plus" and config.rollout_n < 2:
        problems.add(
            f"rollout_n {config.rollout_n} leaves advantage_rule {rule} without other samples to compare with; "
            "use at least 2."
        )
    return {"advantage_rule": rule, "norm_adv_by_std": rule == "grpo"}


def _failures(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Against the rest of its group, one translation sampled again and again is better than no translation."""
    if config.advantage_rule not in _AGAINST_THE_GROUP:
        return {}
    return {"failure_policy": {Status.SINGLE_CANDIDATE.value: FailureAction.CONTRAST.value, **config.failure_policy}}


def _normalisation(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """PaddleNLP forces both off for grpo."""
    derived = {key: bool(getattr(config, key)) for key in ("normalize_reward", "normalize_advantage")}
    if config.advantage_rule == "reinforce_plus_plus":
        return derived
    for key in (key for key, is_on in derived.items() if is_on):
        problems.notice(
            f"{key} has no effect with advantage_rule {config.advantage_rule}, which has a normalisation of its own."
        )
    return dict.fromkeys(derived, False)


def _kl(config: RLConfig, problems: Problems) -> dict[str, Any]:
    in_reward = config.advantage_rule == "reinforce_plus_plus"
    if config.kl_coeff and not in_reward:
        problems.notice(
            f"kl_coeff has no effect with advantage_rule {config.advantage_rule}, whose rewards have no KL penalty; "
            "kl_loss_coeff is the weight of the KL loss."
        )
    return {
        "kl_coeff": _or(config.kl_coeff, 0.02) if in_reward else 0.0,
        "kl_loss_coeff": _or(config.kl_loss_coeff, 0.0 if in_reward else 0.001),
    }


def _clips(config: RLConfig, problems: Problems) -> dict[str, Any]:
    keys = ("clip_range_ratio_low", "clip_range_ratio_high")
    if config.clip_range_ratio_low is None and config.clip_range_ratio > 1:
        problems.add(
            f"clip_range_ratio is {config.clip_range_ratio:g}, which clip_range_ratio_low takes over and must be above "
            "0 and at most 1; lower it or set clip_range_ratio_low."
        )
    return {key: _or(getattr(config, key), config.clip_range_ratio) for key in keys}


def _lengths(config: RLConfig, problems: Problems) -> dict[str, Any]:
    rows = config.per_device_logprob_batch_size
    return {
        "max_length": _or(config.max_length, config.max_prompt_len + config.max_dec_len),
        "overlong_max_resp_len": _or(config.overlong_max_resp_len, config.max_dec_len),
        "rollout_seed": _or(config.rollout_seed, config.seed),
        "per_device_logprob_batch_size": config.per_device_train_batch_size if rows == -1 else rows,
    }


def _correction(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Whether rollouts are corrected for being drawn otherwise than the trainer's policy would have drawn them."""
    if config.rollout_is != "auto":
        return {}
    is_other = config.rollout_quant_type or config.rollout_ahead or config.rollout_backend != "paddle"
    return {"rollout_is": "token" if is_other else "none"}


def _best(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """PaddleNLP takes more of any metric but a loss for better."""
    return {"greater_is_better": _or(config.greater_is_better, held_out_metrics(config).get(best_metric(config) or ""))}


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
