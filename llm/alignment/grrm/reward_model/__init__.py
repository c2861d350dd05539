"""Training of reward models on differences within groups."""
