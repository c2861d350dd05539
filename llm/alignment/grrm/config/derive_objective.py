"""Consequences of the algorithm: its rule, loss and their traits decide defaults, and which keys take effect."""

from __future__ import annotations

from typing import Any, TypeVar

from grrm.algorithms import ALGORITHMS
from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.algorithms.policy_losses import POLICY_LOSSES
from grrm.config.key import keys_of
from grrm.config.keys.objective import CriticConfig, PolicyLossConfig
from grrm.config.problems import Problems
from grrm.config.stage_config import RLConfig
from grrm.gqm.groups import Status
from grrm.gqm.spans import severity_weights
from grrm.rewards.failure_policy import DEFAULT_ACTIONS

P = TypeVar("P", bound=PolicyLossConfig)
# Keys of the critic that are as the policy's, unless they are given.
_AS_THE_POLICY = ("learning_rate", "weight_decay", "lr_scheduler_type", "warmup_ratio", "recompute")


def derive_objective(config: RLConfig, problems: Problems) -> RLConfig:
    """`config` with a rule, a loss, and a value for each of their keys. Notes keys that would be ignored."""
    for step in (_algorithm, _without_std, _rule, _failures, _normalisation, _kl, _spans):
        config = config.model_copy(update=step(config, problems))
    return derive_policy_loss(config, problems)


def derive_policy_loss(config: P, problems: Problems) -> P:
    """`config`, whose loss is known, with a value for each key of the loss. Notes keys that the loss does not read."""
    reads = _keys_of_loss(config.policy_loss)
    if "clip_range_ratio_low" in reads and config.clip_range_ratio_low is None and config.clip_range_ratio > 1:
        problems.add(
            f"clip_range_ratio is {config.clip_range_ratio:g}, which clip_range_ratio_low takes over and must be above "
            "0 and at most 1; lower it or set clip_range_ratio_low."
        )
    for name in sorted(set().union(*map(_keys_of_loss, POLICY_LOSSES)) - reads):
        key = keys_of(type(config))[name]
        if getattr(config, name) == key.default:
            continue
        if key.is_open or key.default is not None:
            problems.notice(f"{name} has no effect with policy_loss {config.policy_loss}, which does not read it.")
        else:  # off unless it is set, so it was meant to do something
            problems.add(f"{name} has no meaning for the {config.policy_loss} loss; remove the key or use token_clip.")
    derived = {key: or_else(getattr(config, key), config.clip_range_ratio) for key in _CLIPS}
    return config.model_copy(update=derived)


_CLIPS = ("clip_range_ratio_low", "clip_range_ratio_high")


def _keys_of_loss(name: str) -> set[str]:
    """The keys that a loss reads, and the one that its clip ranges default to."""
    keys = set(POLICY_LOSSES[name].keys)
    return keys | {"clip_range_ratio"} if keys & set(_CLIPS) else keys


def policy_loss_config(**keys: Any) -> PolicyLossConfig:
    """The settings of a policy loss outside an argument file: token_clip, without KL or weights unless `keys` say so.

    Raises UserError for an unknown key, a value out of range or a key that the loss does not read.
    """
    problems = Problems()
    usual = {"policy_loss": "token_clip", "loss_agg_mode": "token-mean", "kl_loss_coeff": 0.0, "rollout_is": "none"}
    config = derive_policy_loss(PolicyLossConfig(**{**usual, **keys}), problems)
    problems.raise_if_any("policy loss")
    return config


def or_else(value: Any, otherwise: Any) -> Any:
    """`value` unless it is None."""
    return otherwise if value is None else value


def _algorithm(config: RLConfig, problems: Problems) -> dict[str, Any]:
    name = config.rl_algorithm
    algorithm = ALGORITHMS[name]
    loss = config.policy_loss or algorithm.policy_loss
    if name in POLICY_LOSSES and loss != name:
        problems.add(f"rl_algorithm {name} contradicts policy_loss {loss}; use rl_algorithm grpo or drop the key.")
    aggregation = POLICY_LOSSES[loss].aggregation or algorithm.aggregation
    return {
        "advantage_rule": config.advantage_rule or algorithm.advantage_rule,
        "policy_loss": loss,
        "loss_agg_mode": config.loss_agg_mode or aggregation,
    }


def _without_std(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """`norm_adv_by_std` chooses between a rule and its variant without standard deviation, or says what is so."""
    name, by_std = config.advantage_rule, config.norm_adv_by_std
    rule = ADVANTAGE_RULES[name]
    if by_std is False and rule.without_std is not None:
        return {"advantage_rule": rule.without_std, "norm_adv_by_std": False}
    divides = rule.divides_by == "group_std"
    if by_std is not None and by_std != divides:
        problems.add(f"norm_adv_by_std contradicts advantage_rule {name}; remove the key.")
    return {"norm_adv_by_std": divides}


def _rule(config: RLConfig, problems: Problems) -> dict[str, Any]:
    rule = ADVANTAGE_RULES[config.advantage_rule]
    if not rule.per_token and config.gamma != 1.0:
        problems.add(
            f"gamma {config.gamma:g} is not supported with advantage_rule {config.advantage_rule}, which has one "
            "reward per response; remove the key or use rl_algorithm reinforce_plus_plus."
        )
    if rule.compares_with_group and config.rollout_n < 2:
        problems.add(
            f"rollout_n {config.rollout_n} leaves advantage_rule {config.advantage_rule} without other samples to "
            "compare with; use at least 2."
        )
    elif config.length_neutral_rewards and config.rollout_n < 2:
        problems.add(
            f"length_neutral_rewards has no effect with rollout_n {config.rollout_n}, since it compares the samples of "
            "a prompt; use at least 2 or remove the key."
        )
    return {}


def _failures(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """Against the rest of its group, one translation sampled again and again is better than no translation."""
    action = ADVANTAGE_RULES[config.advantage_rule].single_candidate
    if action is DEFAULT_ACTIONS[Status.SINGLE_CANDIDATE]:
        return {}
    return {"failure_policy": {Status.SINGLE_CANDIDATE.value: action.value, **config.failure_policy}}


def _normalisation(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """PaddleNLP forces both off for grpo. Advantages against a critic's values have the scale of its rewards."""
    rule = ADVANTAGE_RULES[config.advantage_rule]
    derived = {key: bool(getattr(config, key)) for key in ("normalize_reward", "normalize_advantage")}
    if not rule.compares_with_group:
        derived["normalize_advantage"] = or_else(config.normalize_advantage, rule.needs_critic)
        return derived
    for key in (key for key, is_on in derived.items() if is_on):
        problems.notice(
            f"{key} has no effect with advantage_rule {config.advantage_rule}, which has a normalisation of its own."
        )
    return dict.fromkeys(derived, False)


def _kl(config: RLConfig, problems: Problems) -> dict[str, Any]:
    in_reward = or_else(config.use_kl_in_reward, ADVANTAGE_RULES[config.advantage_rule].kl_in_reward)
    if config.kl_coeff and not in_reward:
        problems.notice(
            f"kl_coeff has no effect with advantage_rule {config.advantage_rule}, whose rewards have no KL penalty "
            "unless use_kl_in_reward is true; kl_loss_coeff is the weight of the KL loss."
        )
    return {
        "use_kl_in_reward": in_reward,
        "kl_coeff": or_else(config.kl_coeff, 0.02) if in_reward else 0.0,
        "kl_loss_coeff": or_else(config.kl_loss_coeff, 0.0 if in_reward else 0.001),
    }


def _spans(config: RLConfig, problems: Problems) -> dict[str, Any]:
    names = ("span_weight", "span_severities")
    idle = [name for name in names if getattr(config, name) != keys_of(RLConfig)[name].default]
    if idle and not ADVANTAGE_RULES[config.advantage_rule].needs_spans:
        problems.notice(
            f"{' and '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect with advantage_rule "
            f"{config.advantage_rule}, which reads no error spans."
        )
    with problems.noted():
        return {"span_severities": severity_weights(config.span_severities)}
    return {}


def derive_critic(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """A value for each key of the critic. Notes keys that have no effect without one."""
    if not ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        return _without_critic(config, problems)
    rows = config.per_device_value_batch_size
    return {
        "critic_model_name_or_path": or_else(config.critic_model_name_or_path, config.actor_model_name_or_path),
        **{f"critic_{key}": or_else(getattr(config, f"critic_{key}"), getattr(config, key)) for key in _AS_THE_POLICY},
        "per_device_value_batch_size": config.per_device_train_batch_size if rows == -1 else rows,
    }


def _without_critic(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """As files of PaddleNLP, which names the algorithm alone to go from one to another, may have such keys."""
    values = {name: getattr(config, name) for name in keys_of(CriticConfig)}
    idle = [name for name, value in values.items() if value is not False and value != keys_of(RLConfig)[name].default]
    if config.per_device_value_batch_size != -1:
        idle.append("per_device_value_batch_size")
    if idle:
        problems.notice(
            f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect with advantage_rule "
            f"{config.advantage_rule}, which has no critic."
        )
    return {}
