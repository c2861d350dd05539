"""Training of a reward model with a value head, on groups with gold scores or on preference pairs.

python -m paddle.distributed.launch --nproc_per_node 2 run_reward.py ranker_tiny_argument.yaml [--key value ...]
python run_reward.py --help
python run_reward.py ranker_tiny_argument.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grrm.entry import run_main
from grrm.startup import configure_process


def main(words: Sequence[str] | None = None) -> None:
    """Read the argument file named on the command line, or by `words`, and train, or print what it may contain."""
    configure_process()
    from grrm.config import RewardModelConfig
    from grrm.config.command_line import read_command_line

    config = read_command_line(RewardModelConfig, sys.argv[1:] if words is None else words)
    if config is not None:
        # Only now: this loads paddle, and mistakes in the argument file should not have to wait for that.
        from grrm.reward_model.run import train

        train(config)


if __name__ == "__main__":
    run_main(main)
