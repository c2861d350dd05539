"""The objective of one micro-batch: a policy loss, the other terms, aggregation and the correction of rollouts."""

from grrm.rl.losses.aggregation import Denominators, LossOutput, aggregate, count_denominators, merge_metrics
from grrm.rl.losses.objective import kl_penalty, policy_objective, positive_advantage_nll

__all__ = [
    "Denominators",
    "LossOutput",
    "aggregate",
    "count_denominators",
    "kl_penalty",
    "merge_metrics",
    "policy_objective",
    "positive_advantage_nll",
]
