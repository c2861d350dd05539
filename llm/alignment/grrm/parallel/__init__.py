"""Distribution beyond Paddle's fleet: assignment of groups to ranks, and failing together."""
