"""Policy losses: pure functions of one micro-batch, and the objective that composes them."""

from .aggregation import Denominators, aggregate, count_denominators
from .config import PolicyLossConfig
from .gspo import gspo
from .interface import LossInputs, LossOutput, merge_metrics
from .kl import kl_penalty
from .objective import POLICY_LOSSES, policy_objective
from .sft import positive_advantage_nll
from .token_clip import token_clip

__all__ = [
    "POLICY_LOSSES",
    "Denominators",
    "LossInputs",
    "LossOutput",
    "PolicyLossConfig",
    "aggregate",
    "count_denominators",
    "gspo",
    "kl_penalty",
    "merge_metrics",
    "policy_objective",
    "positive_advantage_nll",
    "token_clip",
]
