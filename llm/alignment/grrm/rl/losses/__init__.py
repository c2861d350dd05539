"""The objective of one micro-batch: a policy loss, the other terms, aggregation and the correction of rollouts."""

from .aggregation import Denominators, aggregate, count_denominators
from .interface import LossOutput, merge_metrics
from .kl import kl_penalty
from .objective import policy_objective
from .sft import positive_advantage_nll

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
