"""Starts the reward server: `python reward_server/reward_server.py --port 8731`; `--help` lists the options."""

from grrm.entry import run_command
from grrm_reward_server.main import main

if __name__ == "__main__":
    run_command(main, "reward_server.py")
