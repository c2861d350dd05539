"""The policy's trainer with a critic beside it: both are updated with the same micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from grrm.paddlenlp_api.training import TrainerCallback
from grrm.rl.critic.trainer import CriticTrainer
from grrm.rl.trainer import GroupPolicyTrainer, StepIndex


class ActorTrainer(GroupPolicyTrainer):
    """As `GroupPolicyTrainer`, and every micro-batch, optimizer step and checkpoint is the critic's too.

    In the first `critic_warmup` steps only the critic is updated; the schedule of the policy goes on meanwhile.
    """

    def __init__(self, *, critic: CriticTrainer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.critic = critic
        self.add_callback(StepsTogether(self))

    @property
    def is_warming_up(self) -> bool:
        """True if only the critic is updated in this step."""
        return bool(self.state.global_step < self.config.critic_warmup)

    def training_step(self, model: Any, inputs: StepIndex, step_control: int = 0) -> Any:
        """As the base's, after the critic's part."""
        rows = self._rows(inputs)
        assert self._experience is not None
        self.step_metrics.share(self.critic.accumulate(rows, self._experience.denominators[inputs.update]))
        if not self.is_warming_up:
            return super().training_step(model, inputs, step_control)
        self.step_metrics.add({}, (0.0, 0.0, 0.0))
        return paddle.zeros([])

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Add the critic's learning rate."""
        if "loss" in logs:
            logs["critic_learning_rate"] = float(self.critic.optimizer.get_lr())
        super().log(logs, **kwargs)

    def save_beside(self, checkpoint: Path) -> None:
        """Save the critic as well."""
        super().save_beside(checkpoint)
        self.critic.save(checkpoint, self.state.global_step)


class StepsTogether(TrainerCallback):
    """Takes the critic's optimizer step before the policy's, and skips the policy's during `critic_warmup`."""

    def __init__(self, trainer: ActorTrainer) -> None:
        self.trainer = trainer

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Step the critic; during its warm-up, replace the policy's optimizer, which has no gradients.

        Sharding would give it gradients of zero, and AdamW would decay the weights and its moments.
        """
        self.trainer.critic.step(state.global_step + 1)
        if self.trainer.is_warming_up:
            self.trainer.optimizer = Resting(self.trainer.optimizer)

    def on_optimizer_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the policy's optimizer back."""
        if isinstance(self.trainer.optimizer, Resting):
            self.trainer.optimizer = self.trainer.optimizer.optimizer


@dataclass(slots=True)
class Resting:
    """An optimizer that takes no step."""

    optimizer: Any

    def step(self) -> None:
        """Leave the weights as they are."""

    def clear_grad(self, **kwargs: Any) -> None:
        """As the optimizer's."""
        self.optimizer.clear_grad(**kwargs)
