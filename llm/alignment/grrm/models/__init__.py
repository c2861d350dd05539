"""Networks: policies, packed rows, chunked log-probabilities and losses, checkpoints in and out."""
