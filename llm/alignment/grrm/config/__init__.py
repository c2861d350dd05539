"""Argument files of the training scripts: every key declared once, checks that need no paddle, typed configurations.

A key is declared in `keys`, a stage combines sections of keys (`stage_config`) and is listed in `stages`.
`load_config` reads a file; `training_arguments`, the only module here that imports paddle, hands it to PaddleNLP.
"""

from grrm.config.checks import Launch
from grrm.config.load import Prepared, load_config, prepare
from grrm.config.stage_config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig

__all__ = ["DPOConfig", "Launch", "Prepared", "RLConfig", "RewardModelConfig", "SFTConfig", "load_config", "prepare"]
