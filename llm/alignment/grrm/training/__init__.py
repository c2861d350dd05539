"""Shared parts of all training stages: checkpoints and resuming, callbacks, model set-up."""
