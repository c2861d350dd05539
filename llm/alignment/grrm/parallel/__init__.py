"""What distribution needs beyond Paddle's fleet: who holds which groups, and failing together."""
