"""The records and displays of a run: console, metrics log, rollout dump."""
