"""Argument files of the training scripts: every key declared once, checks that need no paddle, typed configurations.

A key is declared in `keys`, a stage combines sections of keys (`rl_config`, `sft_config`, `dpo_config`,
`reward_model_config`) and is listed in `stages`.
`load_config` reads a file; `training_arguments`, the only module here that imports paddle, hands it to PaddleNLP.
"""

from grrm.config.checks import Launch
from grrm.config.dpo_config import DPOConfig
from grrm.config.load import Prepared, load_config, prepare
from grrm.config.reward_model_config import RewardModelConfig
from grrm.config.rl_config import RLConfig
from grrm.config.sft_config import SFTConfig

__all__ = ["DPOConfig", "Launch", "Prepared", "RLConfig", "RewardModelConfig", "SFTConfig", "load_config", "prepare"]
