"""Objectives of RL: advantage rules and policy losses, a file each, with the traits that configuration needs of them.

No module of this package imports Paddle. Rules are NumPy; losses are written with the methods of their tensors.
"""

from __future__ import annotations

from typing import NamedTuple


class Algorithm(NamedTuple):
    """An advantage rule, a policy loss, and the aggregation of token losses that the paper has."""

    advantage_rule: str
    policy_loss: str
    aggregation: str


# By the value of the key rl_algorithm.
ALGORITHMS = {
    "grpo": Algorithm("grpo", "token_clip", "token-mean"),
    "gspo": Algorithm("grpo", "gspo", "seq-mean-token-mean"),
    "cispo": Algorithm("grpo", "cispo", "token-mean"),
    "gmpo": Algorithm("grpo", "gmpo", "seq-mean-token-mean"),
    "sapo": Algorithm("grpo", "sapo", "seq-mean-token-mean"),
    "dr_grpo": Algorithm("dr_grpo", "token_clip", "seq-mean-token-sum-norm"),
    "rloo": Algorithm("rloo", "token_clip", "token-mean"),
    "reinforce_plus_plus": Algorithm("reinforce_plus_plus", "token_clip", "token-mean"),
    "reinforce_plus_plus_baseline": Algorithm("reinforce_plus_plus_baseline", "token_clip", "token-mean"),
    "ppo": Algorithm("gae", "token_clip", "token-mean"),
}
