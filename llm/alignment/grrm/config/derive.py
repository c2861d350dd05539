"""Fills in the settings that follow from others, and refuses combinations in which one of them would be ignored."""

from __future__ import annotations

from typing import Any

from grrm.errors import UserError

# rl_algorithm -> (advantage rule, policy loss, aggregation the paper prescribes)
_ALGORITHMS = {
    "grpo": ("grpo", "token_clip", "token-mean"),
    "gspo": ("grpo", "gspo", "seq-mean-token-mean"),
    "dr_grpo": ("dr_grpo", "token_clip", "seq-mean-token-sum-norm"),
    "rloo": ("rloo", "token_clip", "token-mean"),
    "reinforce_plus_plus": ("reinforce_plus_plus", "token_clip", "token-mean"),
    "reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", "token_clip", "token-mean"),
}


def derive_rl(values: dict[str, Any]) -> None:
    """Replace every None that means "derived" in `values`.

    Raises UserError where a key could not take effect with the chosen algorithm.
    """
    _algorithm(values)
    _kl(values)
    _clips(values)
    if values["max_length"] is None:
        values["max_length"] = values["max_prompt_len"] + values["max_dec_len"]
    if values["overlong_max_resp_len"] is None:
        values["overlong_max_resp_len"] = values["max_dec_len"]
    if values["rollout_seed"] is None:
        values["rollout_seed"] = values["seed"]
    if values["per_device_logprob_batch_size"] == -1:
        values["per_device_logprob_batch_size"] = values["per_device_train_batch_size"]
    for key in ("normalize_reward", "normalize_advantage"):
        values[key] = bool(values[key])
        if values[key] and values["advantage_rule"] != "reinforce_plus_plus":
            raise UserError(
                f"{key} true is not supported with advantage_rule {values['advantage_rule']}, which normalises by "
                "group or batch itself; remove the key or use rl_algorithm reinforce_plus_plus."
            )


def _algorithm(values: dict[str, Any]) -> None:
    algorithm = values["rl_algorithm"]
    if algorithm == "ppo":
        raise UserError(
            "rl_algorithm ppo is not supported because there is no critic; use grpo, gspo or reinforce_plus_plus."
        )
    rule, loss, aggregation = _ALGORITHMS[algorithm]
    if algorithm == "gspo" and values["policy_loss"] not in (None, "gspo"):
        raise UserError(
            f"rl_algorithm gspo contradicts policy_loss {values['policy_loss']}; use rl_algorithm grpo or drop the key."
        )
    values["advantage_rule"] = values["advantage_rule"] or rule
    values["policy_loss"] = values["policy_loss"] or loss
    if values["policy_loss"] == "gspo":
        aggregation = "seq-mean-token-mean"
        if values["dual_clip_ratio"] is not None:
            raise UserError("dual_clip_ratio has no meaning for the gspo loss; remove the key or use token_clip.")
    values["loss_agg_mode"] = values["loss_agg_mode"] or aggregation
    _rule_keys(values)


def _rule_keys(values: dict[str, Any]) -> None:
    rule = values["advantage_rule"]
    if values["norm_adv_by_std"] is not None:
        if rule not in ("grpo", "grpo_no_std") or (rule == "grpo_no_std" and values["norm_adv_by_std"]):
            raise UserError(f"norm_adv_by_std contradicts advantage_rule {rule}; remove the key.")
        rule = values["advantage_rule"] = "grpo" if values["norm_adv_by_std"] else "grpo_no_std"
    values["norm_adv_by_std"] = rule == "grpo"
    if rule != "reinforce_plus_plus" and values["gamma"] != 1.0:
        raise UserError(
            f"gamma {values['gamma']:g} is not supported with advantage_rule {rule}, which has one reward per "
            "response; remove the key or use rl_algorithm reinforce_plus_plus."
        )
    if rule != "reinforce_plus_plus" and values["rollout_n"] < 2:
        raise UserError(
            f"rollout_n {values['rollout_n']} leaves advantage_rule {rule} without other samples to compare with; "
            "use at least 2."
        )


def _kl(values: dict[str, Any]) -> None:
    in_reward = values["advantage_rule"] == "reinforce_plus_plus"
    if values["kl_coeff"] is None:
        values["kl_coeff"] = 0.02 if in_reward else 0.0
    if values["kl_loss_coeff"] is None:
        values["kl_loss_coeff"] = 0.0 if in_reward else 0.001
    if values["kl_coeff"] and not in_reward:
        raise UserError(
            f"kl_coeff {values['kl_coeff']:g} is the penalty inside the reward of reinforce_plus_plus, which "
            f"advantage_rule {values['advantage_rule']} does not have; set kl_coeff: 0 and use kl_loss_coeff."
        )


def _clips(values: dict[str, Any]) -> None:
    for key in ("clip_range_ratio_low", "clip_range_ratio_high"):
        if values[key] is None:
            values[key] = values["clip_range_ratio"]
