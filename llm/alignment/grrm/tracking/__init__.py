"""What a run leaves behind and shows: console, metrics log, rollout dump."""
