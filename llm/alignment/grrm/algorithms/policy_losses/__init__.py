"""Policy losses: pure functions of one micro-batch, written with the methods of its tensors.

Importing a loss registers it in `POLICY_LOSSES`: one line here for each file.
"""

# ruff: noqa: F401

from grrm.algorithms.policy_losses.cispo import cispo
from grrm.algorithms.policy_losses.gmpo import gmpo
from grrm.algorithms.policy_losses.gspo import gspo
from grrm.algorithms.policy_losses.interface import POLICY_LOSSES, LossInputs, TokenLoss
from grrm.algorithms.policy_losses.sapo import sapo
from grrm.algorithms.policy_losses.token_clip import token_clip

__all__ = ["POLICY_LOSSES", "LossInputs", "TokenLoss"]
