"""Supervised cold start of a translation policy.

python -m paddle.distributed.launch --nproc_per_node 2 run_sft.py sft_tiny_argument.yaml [--key value ...]
python run_sft.py sft_tiny_argument.yaml
"""

from __future__ import annotations

import sys

from grrm.entry import run_main
from grrm.startup import configure_process


def main() -> None:
    """Read the argument file named on the command line and train."""
    from grrm.errors import UserError

    if {"-h", "--help"} & set(sys.argv[1:2]):
        print(__doc__)
        return
    if len(sys.argv) < 2:
        raise UserError("no argument file was given: run_sft.py ARGUMENTS.yaml [--key value ...]")
    configure_process()
    from grrm.config import load_sft_arguments

    arguments = load_sft_arguments(sys.argv[1], sys.argv[2:])
    # Only now: this loads paddle, and mistakes in the argument file should not have to wait for that.
    from grrm.sft.run import train

    train(arguments)


if __name__ == "__main__":
    run_main(main)
