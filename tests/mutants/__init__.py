"""Mutation testing: change the source in one spot, and see whether the quick tests of its room notice."""
