"""What all training stages share: checkpoints and resuming, callbacks, model set-up."""
