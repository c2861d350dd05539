"""What follows from there being a critic, or none: its optimizer's keys, and which of them take effect."""

from __future__ import annotations

from typing import Any

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.derive_objective import or_else
from grrm.config.key import keys_of
from grrm.config.keys.objective import CriticConfig
from grrm.config.problems import Problems
from grrm.config.rl_config import RLConfig

# Keys that are as the policy's, unless they are given.
_FOLLOWS = ("learning_rate", "weight_decay", "lr_scheduler_type", "warmup_ratio", "recompute")


def derive_critic(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """A value for each key of the critic. Notes keys that have no effect without one."""
    if not ADVANTAGE_RULES[config.advantage_rule].needs_critic:
        return _without(config, problems)
    rows = config.per_device_value_batch_size
    return {
        "critic_model_name_or_path": or_else(config.critic_model_name_or_path, config.actor_model_name_or_path),
        **{f"critic_{key}": or_else(getattr(config, f"critic_{key}"), getattr(config, key)) for key in _FOLLOWS},
        "per_device_value_batch_size": config.per_device_train_batch_size if rows == -1 else rows,
    }


def _without(config: RLConfig, problems: Problems) -> dict[str, Any]:
    """As files of PaddleNLP, which names the algorithm alone to go from one to another, may have such keys."""
    idle = [name for name, key in keys_of(CriticConfig).items() if getattr(config, name) not in (key.default, False)]
    if config.per_device_value_batch_size != -1:
        idle.append("per_device_value_batch_size")
    if idle:
        problems.notice(
            f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect with advantage_rule "
            f"{config.advantage_rule}, which has no critic."
        )
    return {}
