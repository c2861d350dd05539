"""Starts the reward server: `python reward_server/reward_server.py --port 8731`; `--help` lists the options."""

from grrm_reward_server.main import main

if __name__ == "__main__":
    main()
