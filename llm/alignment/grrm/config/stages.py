"""The training stages: what each reads and how it is checked. A further one is a model of its keys and a line here."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from grrm.config.batch_plan import BatchPlan
from grrm.config.checks import check_batches, check_dpo, check_reward_model, check_rl, check_sft
from grrm.config.derive import derive_rl
from grrm.config.problems import Problems
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig, StageConfig


@dataclass(frozen=True, slots=True)
class Stage:
    """One training script. `check` is given what `derive` returns, the keys of the file, and where to note mistakes.

    `plan` works out the batches from the same, the number of data ranks and that of the prompts.
    """

    script: str
    summary: str
    config: type[StageConfig]
    check: Callable[[Any, Set[str], Problems], None]
    derive: Callable[[Any, Problems], Any] = lambda config, _: config
    plan: Callable[[Any, Set[str], int, int | None, Problems], BatchPlan | None] | None = None

    @property
    def name(self) -> str:
        """Its name as a command of `grrm`."""
        return self.script.removeprefix("run_").removesuffix(".py")


STAGES = (
    Stage("run_rl.py", "Reinforcement learning of a translation policy.", RLConfig, check_rl, derive_rl, check_batches),
    Stage("run_sft.py", "Supervised cold start of a translation policy.", SFTConfig, check_sft),
    Stage("run_dpo.py", "Preference optimization of a policy on pairs.", DPOConfig, check_dpo),
    Stage("run_reward.py", "Training of a reward model with a value head.", RewardModelConfig, check_reward_model),
)


def stage_of(config: type[StageConfig]) -> Stage:
    """The stage that a class of configurations belongs to."""
    return next(stage for stage in STAGES if stage.config is config)
