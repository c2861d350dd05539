"""The objective of one micro-batch: a policy loss, the other terms, aggregation and the correction of rollouts."""
