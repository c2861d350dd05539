"""Probes of a judge: translations that a policy could find a reward in, and how the judge orders them."""
