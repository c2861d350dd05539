"""Layouts of files with rows: each opened as a `RowTable`, by its ending."""
