"""Direct preference optimization of a policy on pairs."""
