"""A loss that is no number any more is the end of a run, told in one sentence."""

from __future__ import annotations

import math
from typing import Any

from grrm.errors import UserError


class StopsAtDivergence:
    """Mixin over PaddleNLP's Trainer, which raises a ValueError with a traceback there."""

    def _check_loss_valid(self, loss: Any) -> None:
        """Called before every optimizer step with this rank's summed loss; the weights are still good then."""
        value = float(loss)
        if not math.isfinite(value):
            trainer: Any = self
            raise UserError(
                f"the loss is {value} in step {trainer.state.global_step + 1}: training has diverged, lower "
                "learning_rate or max_grad_norm and start again, it goes on from the last checkpoint"
            )
