"""Corpora of sentence pairs: each module `NAME` with a function `build_NAME` is the command `grrm data corpus NAME`."""
